# shellcheck shell=sh
# digest: print the SHA-256 of what is read. Both systems have both programs; openssl uses what the processor has for it and is
# ten times as fast.
digest() {
    if command -v openssl >/dev/null 2>&1; then
        sum=$(openssl dgst -sha256)
        printf '%s' "${sum##* }"
    else
        sum=$(shasum -a 256)
        printf '%s' "${sum%% *}"
    fi
}
