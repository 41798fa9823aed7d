#!/bin/sh
# Serve the metrics of this Mac on its tailnet address only; without one, fail.
set -eu
tries=5
while [ "$tries" -gt 0 ]; do
    address=$(@tailscale@ ip -4 2>/dev/null | head -n 1) || address=
    case $address in
    100.*)
        exec @node_exporter@ \
            --web.listen-address="$address:@port@" \
            --collector.disable-defaults \
            --collector.cpu --collector.diskstats --collector.filesystem --collector.loadavg --collector.meminfo \
            --collector.netdev --collector.os --collector.time --collector.uname
        ;;
    esac
    tries=$((tries - 1))
    sleep 2
done
echo "this Mac has no tailnet address, so its metrics are not served" >&2
exit 1
