"""All SQL of the store, for both databases, and the numbered migrations of its schema.

Parameters are written `:name`. Words in braces differ between the databases and are replaced by `Dialect.render`. Times are
milliseconds since 1970.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PARAMETER = re.compile(r":([a-z_]+)")


@dataclass(frozen=True, slots=True)
class Dialect:
    """The words that one database needs, and how it writes parameters."""

    words: Mapping[str, str]
    parameter: str

    def render(self, statement: str) -> str:
        """Return a statement in this dialect."""
        for word, text in self.words.items():
            statement = statement.replace(f"{{{word}}}", text)
        return _PARAMETER.sub(self.parameter, statement)


SQLITE = Dialect(
    {
        "serial": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "bytes": "BLOB",
        "lock": "",
        "skip_locked": "",
        "greatest": "max",
        "position": "instr",
        "each_id": "json_each(:ids)",
    },
    r":\1",
)
POSTGRES = Dialect(
    {
        "serial": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "bytes": "BYTEA",
        "lock": "FOR UPDATE",
        "skip_locked": "FOR UPDATE SKIP LOCKED",
        "greatest": "GREATEST",
        "position": "strpos",
        "each_id": "json_array_elements_text(CAST(:ids AS json)) AS each_id(value)",
    },
    r"%(\1)s",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE deliveries (
            id {serial}, guid TEXT NOT NULL UNIQUE, content_hash TEXT NOT NULL UNIQUE,
            event TEXT NOT NULL, body {bytes}, received_at BIGINT NOT NULL,
            processed_at BIGINT, outcome TEXT NOT NULL DEFAULT '')""",
        "CREATE INDEX deliveries_pending ON deliveries (id) WHERE processed_at IS NULL",
        "CREATE INDEX deliveries_processed ON deliveries (processed_at)",
        """CREATE TABLE jobs (
            id BIGINT PRIMARY KEY, state TEXT NOT NULL, phase INTEGER NOT NULL,
            pool TEXT NOT NULL, problem TEXT NOT NULL, priority INTEGER NOT NULL,
            rank BIGINT NOT NULL, turn BIGINT NOT NULL, generation BIGINT NOT NULL DEFAULT 0,
            account TEXT NOT NULL, repository TEXT NOT NULL, labels TEXT NOT NULL,
            run_id BIGINT NOT NULL, run_attempt INTEGER NOT NULL, workflow TEXT NOT NULL,
            name TEXT NOT NULL, branch TEXT NOT NULL, sha TEXT NOT NULL,
            runner_name TEXT NOT NULL, conclusion TEXT NOT NULL,
            queued_at BIGINT, started_at BIGINT, completed_at BIGINT, updated_at BIGINT NOT NULL)""",
        "CREATE INDEX jobs_queue ON jobs (pool, account, rank, id) WHERE state = 'queued'",
        """CREATE INDEX jobs_ended ON jobs (updated_at)
            WHERE state = 'completed' OR state = 'cancelled'""",
        """CREATE INDEX jobs_open ON jobs (id)
            WHERE state <> 'completed' AND state <> 'cancelled'""",
        """CREATE TABLE pools (pool TEXT PRIMARY KEY, turns BIGINT NOT NULL,
            used_at BIGINT NOT NULL)""",
        """CREATE TABLE shares (pool TEXT NOT NULL, account TEXT NOT NULL,
            served_turn BIGINT NOT NULL, served_at BIGINT NOT NULL, PRIMARY KEY (pool, account))""",
        "CREATE TABLE accounts (account TEXT PRIMARY KEY, added_at BIGINT NOT NULL)",
        """CREATE TABLE claims (
            handle {serial}, job_id BIGINT, generation BIGINT NOT NULL,
            pod_name TEXT NOT NULL, pod_uid TEXT NOT NULL, host TEXT NOT NULL,
            image TEXT NOT NULL, pool TEXT NOT NULL, account TEXT NOT NULL,
            claimed_at BIGINT NOT NULL, stamped_at BIGINT, minted_at BIGINT, jit TEXT,
            runner_name TEXT NOT NULL DEFAULT '', runner_id BIGINT, online_at BIGINT,
            finished_at BIGINT, ended_at BIGINT, outcome TEXT NOT NULL DEFAULT '')""",
        "CREATE UNIQUE INDEX claims_pod_name ON claims (pod_name) WHERE ended_at IS NULL",
        "CREATE UNIQUE INDEX claims_live_pod ON claims (pod_uid) WHERE ended_at IS NULL",
        "CREATE UNIQUE INDEX claims_live_job ON claims (job_id) WHERE finished_at IS NULL",
        "CREATE UNIQUE INDEX claims_runner ON claims (runner_name) WHERE runner_name <> ''",
        "CREATE INDEX claims_active ON claims (account, pool) WHERE finished_at IS NULL",
        """CREATE INDEX claims_live ON claims (handle)
            WHERE ended_at IS NULL OR finished_at IS NULL""",
        "CREATE INDEX claims_pod ON claims (pod_uid)",
        "CREATE INDEX claims_by_pod_name ON claims (pod_name)",
        "CREATE INDEX claims_job ON claims (job_id)",
        "CREATE INDEX claims_by_time ON claims (pool, claimed_at)",
        """CREATE TABLE executions (
            job_id BIGINT PRIMARY KEY, runner_name TEXT NOT NULL, handle BIGINT,
            started_at BIGINT, ended_at BIGINT, conclusion TEXT NOT NULL DEFAULT '')""",
        "CREATE INDEX executions_ended ON executions (ended_at)",
        """CREATE TABLE pods (pod_uid TEXT PRIMARY KEY, pod_name TEXT NOT NULL,
            pool TEXT NOT NULL, first_poll_at BIGINT NOT NULL)""",
        "CREATE INDEX pods_by_pool ON pods (pool)",
        "CREATE INDEX pods_by_name ON pods (pod_name)",
        """CREATE TABLE logs (handle BIGINT PRIMARY KEY, content TEXT NOT NULL,
            saved_at BIGINT NOT NULL)""",
        "CREATE INDEX logs_saved ON logs (saved_at)",
    ),
)

CREATE_VERSION = "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)"
READ_VERSION = "SELECT COALESCE(MAX(version), 0) AS version FROM schema_version"
ADD_VERSION = "INSERT INTO schema_version (version) VALUES (:version)"

# Webhook deliveries.

# Counts only if so many ids have been given out since the oldest one, so that a growing backlog is not counted each time.
COUNT_PENDING = """SELECT CASE
        WHEN (SELECT MAX(id) FROM deliveries)
            - (SELECT MIN(id) FROM deliveries WHERE processed_at IS NULL) + 1 >= :max
        THEN (SELECT COUNT(*) FROM
            (SELECT 1 FROM deliveries WHERE processed_at IS NULL LIMIT :max) AS waiting)
        ELSE 0 END AS pending"""
# Both constraints count: a redelivery has the same guid, a repeated event the same content.
ADD_DELIVERY = """INSERT INTO deliveries (guid, content_hash, event, body, received_at)
    VALUES (:guid, :content_hash, :event, :body, :now) ON CONFLICT DO NOTHING RETURNING id"""
PENDING_DELIVERIES = """SELECT id, guid, event, body, received_at FROM deliveries
    WHERE processed_at IS NULL AND id > :after_id ORDER BY id LIMIT :max"""
LOCK_DELIVERY = """SELECT id FROM deliveries
    WHERE id = :id AND processed_at IS NULL {skip_locked}"""
# The body is not needed any more; the keys stay, to recognise repetitions.
FINISH_DELIVERY = """UPDATE deliveries SET processed_at = :now, outcome = :outcome, body = NULL
    WHERE id = :id"""

# Jobs.

ADD_JOB = """INSERT INTO jobs (id, state, phase, pool, problem, priority, rank, turn, account,
        repository, labels, run_id, run_attempt, workflow, name, branch, sha, runner_name,
        conclusion, queued_at, started_at, completed_at, updated_at)
    VALUES (:id, 'waiting', :phase, '', '', 0, 0, 0, :account, :repository, :labels, :run_id,
        :run_attempt, :workflow, :name, :branch, :sha, :runner_name, :conclusion, :queued_at,
        :started_at, :completed_at, :now)
    ON CONFLICT DO NOTHING"""
LOCK_JOB = "SELECT * FROM jobs WHERE id = :id {lock}"
READ_JOB = "SELECT * FROM jobs WHERE id = :id"
UPDATE_JOB = """UPDATE jobs SET state = :state, phase = :phase, pool = :pool, problem = :problem,
        priority = :priority, rank = :rank, turn = :turn, repository = :repository,
        labels = :labels, run_id = :run_id, run_attempt = :run_attempt, workflow = :workflow,
        name = :name, branch = :branch, sha = :sha, runner_name = :runner_name,
        conclusion = :conclusion, queued_at = :queued_at, started_at = :started_at,
        completed_at = :completed_at, updated_at = :now
    WHERE id = :id"""
# A job that ended is never queued again. GitHub's phase falls back too, otherwise the next report would undo the release.
REQUEUE_JOB = """UPDATE jobs SET state = 'queued', phase = 2, generation = generation + 1,
        runner_name = '', started_at = NULL, updated_at = :now
    WHERE id = :id AND state IN ('claimed', 'running') RETURNING pool"""
CANCEL_JOB = """UPDATE jobs SET state = 'cancelled', updated_at = :now
    WHERE id = :id AND state NOT IN ('completed', 'cancelled') RETURNING id"""
LIST_JOBS = """SELECT * FROM jobs
    WHERE id < :before_id AND (:pool = '' OR pool = :pool) AND (:account = '' OR account = :account)
        AND (:states = '' OR {position}(:states, '|' || state || '|') > 0)
    ORDER BY id DESC LIMIT :max"""
ROUTE_JOB = """UPDATE jobs SET pool = :pool, problem = :problem, priority = :priority,
        rank = :rank, turn = :turn, updated_at = :now
    WHERE id = :id"""
TOUCH_JOB = """UPDATE jobs SET updated_at = :now
    WHERE id = :id AND state <> 'completed' AND state <> 'cancelled' RETURNING pool, state"""
QUEUED_POOLS = "SELECT DISTINCT pool FROM jobs WHERE state = 'queued' ORDER BY pool"
UNSTARTED_JOBS = """SELECT * FROM jobs WHERE state <> 'completed' AND state <> 'cancelled'
        AND pool = :pool AND id > :after_id
        AND CASE WHEN pool = '' THEN updated_at >= :since ELSE state IN ('queued', 'waiting') END
    ORDER BY id LIMIT :max"""
STALE_JOBS = """SELECT * FROM jobs WHERE state <> 'completed' AND state <> 'cancelled'
        AND updated_at < :before AND id > :after_id
        AND {position}(:states, '|' || state || '|') > 0
    ORDER BY id LIMIT :max"""
JOBS_BY_ID = "SELECT * FROM jobs WHERE id IN (SELECT CAST(value AS BIGINT) FROM {each_id})"
JOBS_SINCE = """SELECT * FROM jobs WHERE updated_at >= :since AND id > :after_id
    ORDER BY id LIMIT :max"""

# Claims.

HAS_QUEUED = "SELECT 1 AS found FROM jobs WHERE pool = :pool AND state = 'queued' LIMIT 1"
QUEUES_OF_ACCOUNT = """SELECT pool FROM pools WHERE EXISTS (SELECT 1 FROM jobs
    WHERE jobs.pool = pools.pool AND jobs.account = :account AND jobs.state = 'queued')"""
ADD_POOL = """INSERT INTO pools (pool, turns, used_at) VALUES (:pool, 0, :now)
    ON CONFLICT DO NOTHING"""
LOCK_POOL = "SELECT turns FROM pools WHERE pool = :pool {lock}"
READ_TURNS = "SELECT turns FROM pools WHERE pool = :pool"
NEXT_TURN = "UPDATE pools SET turns = turns + 1, used_at = :now WHERE pool = :pool"
# Jumps from account to account in the index and reads the first job of each, whatever the number of queued jobs. Without
# MIN and joins, for which PostgreSQL reads the whole queue as long as it has no statistics of a new table.
CANDIDATES = """WITH RECURSIVE waiting(account) AS (
        SELECT (SELECT account FROM jobs WHERE pool = :pool AND state = 'queued'
            ORDER BY account LIMIT 1)
        UNION ALL
        SELECT (SELECT jobs.account FROM jobs WHERE jobs.pool = :pool AND jobs.state = 'queued'
            AND jobs.account > waiting.account ORDER BY jobs.account LIMIT 1)
        FROM waiting WHERE waiting.account IS NOT NULL)
    SELECT account,
        (SELECT jobs.rank FROM jobs WHERE jobs.pool = :pool AND jobs.state = 'queued'
            AND jobs.account = waiting.account ORDER BY jobs.rank, jobs.id LIMIT 1) AS rank,
        (SELECT jobs.turn FROM jobs WHERE jobs.pool = :pool AND jobs.state = 'queued'
            AND jobs.account = waiting.account ORDER BY jobs.rank, jobs.id LIMIT 1) AS turn,
        (SELECT COUNT(*) FROM claims WHERE claims.account = waiting.account
            AND claims.pool = :pool AND claims.finished_at IS NULL) AS active,
        (SELECT COUNT(*) FROM claims WHERE claims.account = waiting.account
            AND claims.finished_at IS NULL) AS active_everywhere,
        COALESCE((SELECT served_turn FROM shares WHERE shares.pool = :pool
            AND shares.account = waiting.account), -1) AS served_turn
    FROM waiting WHERE account IS NOT NULL"""
ADD_ACCOUNT = """INSERT INTO accounts (account, added_at) VALUES (:account, :now)
    ON CONFLICT DO NOTHING"""
LOCK_ACCOUNT = "SELECT account FROM accounts WHERE account = :account {lock}"
COUNT_ACTIVE = """SELECT COUNT(*) AS active FROM claims
    WHERE account = :account AND finished_at IS NULL"""
TAKE_JOB = """UPDATE jobs SET state = 'claimed', generation = generation + 1, updated_at = :now
    WHERE state = 'queued' AND id = (
        SELECT id FROM jobs WHERE pool = :pool AND account = :account AND state = 'queued'
        ORDER BY rank, id LIMIT 1 {skip_locked})
    RETURNING id, generation"""
ADD_CLAIM = """INSERT INTO claims (job_id, generation, pod_name, pod_uid, host, image, pool,
        account, claimed_at)
    VALUES (:job_id, :generation, :pod_name, :pod_uid, :host, :image, :pool, :account, :now)
    RETURNING *"""
SERVED = """INSERT INTO shares (pool, account, served_turn, served_at)
    VALUES (:pool, :account, :turn, :now)
    ON CONFLICT (pool, account) DO UPDATE SET served_turn = excluded.served_turn,
        served_at = excluded.served_at"""
CLAIM_OF_POD = "SELECT * FROM claims WHERE pod_uid = :pod_uid ORDER BY handle DESC LIMIT 1"
READ_CLAIM = "SELECT * FROM claims WHERE handle = :handle"
CLAIMS_OF_JOB = "SELECT * FROM claims WHERE job_id = :job_id ORDER BY handle"
CLAIMS_OF_JOBS = """SELECT * FROM claims
    WHERE job_id IN (SELECT CAST(value AS BIGINT) FROM {each_id}) ORDER BY handle"""
LIVE_CLAIMS = """SELECT * FROM claims WHERE (ended_at IS NULL OR finished_at IS NULL)
    AND handle > :after_handle ORDER BY handle LIMIT :max"""
NEWEST_OF_POD_NAME = """SELECT * FROM claims WHERE pod_name = :pod_name
    ORDER BY handle DESC LIMIT 1"""
CLAIM_HOLDING = "SELECT * FROM claims WHERE job_id = :job_id AND finished_at IS NULL"
CLAIM_OF_RUNNER = """SELECT * FROM claims WHERE runner_name = :runner_name
    AND runner_name <> '' AND account = :account"""
STAMP = """UPDATE claims SET stamped_at = :now, runner_name = :runner_name
    WHERE handle = :handle AND finished_at IS NULL AND stamped_at IS NULL RETURNING handle"""
# Compares the name: only one of two requests that found the same unanswered stamp may continue.
RESTAMP = """UPDATE claims SET stamped_at = :now, runner_name = :new_name
    WHERE handle = :handle AND finished_at IS NULL AND ended_at IS NULL
        AND runner_name = :old_name AND stamped_at IS NOT NULL AND minted_at IS NULL
    RETURNING handle"""
MINT = """UPDATE claims SET minted_at = :now, jit = :jit, runner_id = :runner_id
    WHERE handle = :handle AND runner_name = :runner_name
        AND finished_at IS NULL AND ended_at IS NULL
        AND stamped_at IS NOT NULL AND minted_at IS NULL RETURNING handle"""
# GitHub's times are whole seconds, and may be before ours.
RUNNER_ONLINE = """UPDATE claims SET online_at = {greatest}(minted_at, :now), jit = NULL
    WHERE handle = :handle AND minted_at IS NOT NULL AND online_at IS NULL RETURNING handle"""
FINISH_CLAIM = """UPDATE claims SET finished_at = :now, outcome = :outcome
    WHERE handle = :handle AND finished_at IS NULL RETURNING job_id, account"""
END_CLAIM = """UPDATE claims SET ended_at = COALESCE(ended_at, :now), jit = NULL
    WHERE handle = :handle"""
FINISH_AND_END_CLAIM = """UPDATE claims SET
        outcome = CASE WHEN finished_at IS NULL THEN :outcome ELSE outcome END,
        finished_at = COALESCE(finished_at, :now), ended_at = COALESCE(ended_at, :now), jit = NULL
    WHERE handle = :handle AND (finished_at IS NULL OR ended_at IS NULL) RETURNING account"""
SET_CLAIMED_JOB = """UPDATE claims SET job_id = :job_id, finished_at = NULL, outcome = ''
    WHERE handle = :handle"""
CLAIMS_OF_POD_NAME = """SELECT * FROM claims WHERE pod_name = :pod_name
    AND (ended_at IS NULL OR ended_at > :ended_at) AND claimed_at <= :now ORDER BY handle"""
STOP_CLAIM = """UPDATE claims SET ended_at = {greatest}(claimed_at, :ended_at), jit = NULL
    WHERE handle = :handle"""

# Executions and Pods.

ADD_EXECUTION = """INSERT INTO executions (job_id, runner_name, handle, started_at)
    VALUES (:job_id, :runner_name, :handle, :started_at)
    ON CONFLICT (job_id) DO UPDATE SET runner_name = excluded.runner_name,
        handle = COALESCE(excluded.handle, executions.handle), started_at = excluded.started_at"""
END_EXECUTION = """UPDATE executions SET ended_at = :ended_at, conclusion = :conclusion
    WHERE job_id = :job_id"""
READ_EXECUTION = "SELECT * FROM executions WHERE job_id = :job_id"
EXECUTIONS_OF_JOBS = """SELECT * FROM executions
    WHERE job_id IN (SELECT CAST(value AS BIGINT) FROM {each_id})"""
SAVE_LOG = """INSERT INTO logs (handle, content, saved_at)
    SELECT handle, :content, :now FROM claims WHERE handle = :handle
    ON CONFLICT (handle) DO UPDATE SET content = excluded.content, saved_at = excluded.saved_at"""
LOG_OF_JOB = """SELECT content FROM logs WHERE handle IN (
        SELECT handle FROM claims WHERE job_id = :job_id
        UNION SELECT handle FROM executions WHERE job_id = :job_id)
    ORDER BY handle DESC LIMIT 1"""
FIND_POD = "SELECT first_poll_at FROM pods WHERE pod_uid = :pod_uid"
ADD_POD = """INSERT INTO pods (pod_uid, pod_name, pool, first_poll_at)
    VALUES (:pod_uid, :pod_name, :pool, :now) ON CONFLICT DO NOTHING RETURNING pod_uid"""
DELETE_POD = "DELETE FROM pods WHERE pod_name = :pod_name AND first_poll_at <= :now"

# Signals.

# The pool as an expression, here and below, because SQLite would read all claims of 30 days in the index by pool.
COUNT_CLAIMS = """SELECT COUNT(CASE WHEN finished_at IS NULL THEN 1 END) AS claimed,
        COUNT(CASE WHEN ended_at IS NULL AND (finished_at IS NULL OR claimed_at > :oldest) THEN 1
            END) AS occupied
    FROM claims WHERE pool || '' = :pool AND (ended_at IS NULL OR finished_at IS NULL)"""
QUEUED_PER_ACCOUNT = """SELECT account, COUNT(*) AS queued FROM jobs
    WHERE pool = :pool AND state = 'queued' GROUP BY account"""
ACTIVE_PER_ACCOUNT = """SELECT account, COUNT(*) AS active FROM claims
    WHERE finished_at IS NULL GROUP BY account"""
OPEN_JOBS = """SELECT pool, account, state, COUNT(*) AS jobs, MIN(queued_at) AS oldest FROM jobs
    WHERE state <> 'completed' AND state <> 'cancelled' AND pool <> ''
    GROUP BY pool, account, state"""
POOLS_WITH_CLAIMS = """SELECT DISTINCT pool || '' AS pool FROM claims
    WHERE ended_at IS NULL OR finished_at IS NULL"""
QUEUE_POSITION = """SELECT
        (SELECT COUNT(*) FROM jobs WHERE jobs.pool = this.pool AND jobs.account = this.account
            AND jobs.state = 'queued' AND (jobs.rank < this.rank
                OR (jobs.rank = this.rank AND jobs.id < this.id))) AS ahead_of_account,
        (SELECT COUNT(*) FROM jobs WHERE jobs.pool = this.pool AND jobs.state = 'queued')
            AS queued_in_pool,
        (SELECT COUNT(*) FROM claims WHERE claims.account = this.account
            AND claims.finished_at IS NULL) AS active_of_account,
        (SELECT COUNT(*) FROM claims WHERE claims.pool || '' = this.pool
            AND claims.finished_at IS NULL) AS active_in_pool
    FROM jobs AS this WHERE this.id = :id"""
SESSIONS = """SELECT claimed_at, ended_at FROM claims
    WHERE pool = :pool AND claimed_at > :oldest AND (ended_at IS NULL OR ended_at > :since)"""
FIRST_POLLS = """SELECT pod_name, first_poll_at FROM pods WHERE pool = :pool
    ORDER BY first_poll_at DESC LIMIT :max"""
JOBS_PER_IMAGE = """SELECT claims.image, COUNT(*) AS finished,
        COUNT(CASE WHEN executions.conclusion IN ('failure', 'timed_out', 'startup_failure')
            THEN 1 END) AS failed
    FROM executions JOIN claims ON claims.handle = executions.handle
    WHERE claims.pool = :pool AND executions.ended_at >= :since GROUP BY claims.image"""

# Retention.

EXPIRED_JOBS = """SELECT id FROM jobs WHERE (state = 'completed' OR state = 'cancelled')
    AND updated_at < :before ORDER BY updated_at LIMIT :max"""
DELETE_JOB = "DELETE FROM jobs WHERE id = :id"
DELETE_EXECUTION = "DELETE FROM executions WHERE job_id = :id"
DELETE_CLAIMS_OF_JOB = """DELETE FROM claims
    WHERE job_id = :id AND finished_at IS NOT NULL AND ended_at IS NOT NULL"""
DELETE_CLAIMS = """DELETE FROM claims WHERE handle IN (SELECT handle FROM claims
    WHERE finished_at < :before AND ended_at < :before LIMIT :max) RETURNING handle"""
DELETE_DELIVERIES = """DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries
    WHERE processed_at < :before ORDER BY processed_at LIMIT :max) RETURNING id"""
DELETE_PODS = "DELETE FROM pods WHERE first_poll_at < :before"
DELETE_LOGS = """DELETE FROM logs WHERE handle IN (SELECT handle FROM logs
    WHERE saved_at < :before ORDER BY saved_at LIMIT :max) RETURNING handle"""
DELETE_SHARES = "DELETE FROM shares WHERE served_at < :before"
# Jobs that wait were numbered by the turns of their pool.
DELETE_POOLS = """DELETE FROM pools WHERE used_at < :before AND NOT EXISTS (
    SELECT 1 FROM jobs WHERE jobs.pool = pools.pool AND jobs.state = 'queued')"""
# An account with a share was served lately; this runs after the old shares are deleted.
DELETE_ACCOUNTS = """DELETE FROM accounts WHERE added_at < :before
    AND NOT EXISTS (SELECT 1 FROM shares WHERE shares.account = accounts.account)
    AND NOT EXISTS (SELECT 1 FROM claims WHERE claims.account = accounts.account
        AND claims.finished_at IS NULL)"""
