# SPDX-License-Identifier: Apache-2.0 OR MIT
# What the prolog, the epilog and the task prolog have in common; sourced by them.
# shellcheck shell=sh

PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin
configuration=${TERRACE_SLURM_CONF:-/etc/terrace/slurm.conf}
job=${SLURM_JOB_ID:?this is a script for Slurm}

# shellcheck source=terrace-slurm.conf
. "$configuration"
terrace=${terrace:-terrace}

tier=job-$job
fast=$fast_root/$job
mount_point=$mount_root/$job
failure=$mount_root/$job.failed

log() {
    logger -t terrace-slurm -- "job $job: $*" 2>/dev/null || true
    echo "terrace: job $job: $*" >&2
}

# The path of the job's store.
store_of() {
    echo "$store" | sed -e "s|%u|$1|g" -e "s|%j|$job|g"
}

# Runs a command as the job's user.
as_user() {
    if [ "$(id -u)" -eq "$SLURM_JOB_UID" ]; then
        "$@"
    else
        setpriv --reuid "$SLURM_JOB_UID" --regid "$(id -g "$SLURM_JOB_UID")" --init-groups --reset-env -- "$@"
    fi
}
