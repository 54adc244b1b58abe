"""Run a command in a virtual machine that boots the system in a folder, with a kernel and control groups of its own.

    python -m campaigns.machine ROOT /usr/bin/python3 -m pytest tests/unit

ROOT has a kernel in /boot. What the command writes comes out here, and its exit status is this one's; what it does to
its files is gone with the machine. The processor is emulated, which takes no rights and ten times as long.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

PROGRAMS = ("qemu-system-x86_64", "mke2fs")
_DISK, _MEMORY = "8G", "6G"
_BEGIN, _END = "=== the command begins", "=== the command ended with "
_LOST = 70
# As a service is started: in a group of its own, in one that hands memory down.
_INIT = f"""#!/bin/sh
mount -t proc proc /proc 2>/dev/null
echo 0 > /proc/sys/kernel/printk
mount -t sysfs sysfs /sys 2>/dev/null
mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /sys/fs/cgroup/services/one
for group in /sys/fs/cgroup /sys/fs/cgroup/services; do echo +memory > $group/cgroup.subtree_control; done
echo $$ > /sys/fs/cgroup/services/one/cgroup.procs
/command > /said 2>&1 < /dev/null
status=$?
echo '{_BEGIN}'
cat /said
echo "{_END}$status"
sleep 1
echo o > /proc/sysrq-trigger
sleep 60
"""


def boot(root: Path, command: Sequence[str], settings: dict[str, str]) -> tuple[int, str]:
    """The exit status of the command, and what it said."""
    (kernel,), (early,) = (sorted((root / "boot").glob(name)) for name in ("vmlinuz-*", "initrd.img-*"))
    exported = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())
    line = f"#!/bin/sh\n{exported}cd /try/tree && exec {shlex.join(command)}\n"
    for name, text in (("begin", _INIT), ("command", line)):
        (root / name).write_text(text)
        (root / name).chmod(0o755)
    with tempfile.TemporaryDirectory() as folder:
        disk = Path(folder) / "disk"
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", root, disk, _DISK], check=True, capture_output=True)
        machine = (
            "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", _MEMORY,
            "-nographic", "-no-reboot", "-nic", "none", "-kernel", kernel, "-initrd", early,
            "-append", "root=/dev/vda rw console=ttyS0 quiet loglevel=0 panic=-1 init=/begin",
            "-drive", f"file={disk},format=raw,if=virtio,cache=unsafe",
        )  # fmt: skip
        done = subprocess.run(machine, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    console = done.stdout.decode(errors="replace").replace("\r", "")
    said, ended, status = console.partition(f"{_BEGIN}\n")[2].rpartition(_END)
    if not ended:
        return _LOST, f"the machine was lost: {console[-2000:]}{done.stderr.decode(errors='replace')}"
    return int(status.split()[0]), said


def main() -> int:
    if missing := [name for name in PROGRAMS if not shutil.which(name)]:
        sys.exit(f"there is no {missing[0]} here")
    root, *command = sys.argv[1:]
    status, said = boot(Path(root), command, dict(os.environ))
    print(said, end="")
    return status


if __name__ == "__main__":
    sys.exit(main())
