#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Fails where a program needs a newer C library than the systems that packages are for have.

    tools/check-glibc.py MAXIMUM PROGRAM...

Looks at the versions of the symbols that each program takes from glibc (`objdump -T`), and at the libraries it names.
"""

import re
import subprocess
import sys

# What every system of the package has: the parts of glibc, and the library for unwinding.
LIBRARIES = re.compile(r"(libc|libm|libdl|librt|libpthread|libutil|ld-linux-[a-z0-9-]+|libgcc_s)\.so\.\d+$")


def versions(program: str) -> dict[tuple[int, ...], list[str]]:
    """The symbols of each version of glibc that the program needs."""
    table = subprocess.run(["objdump", "-T", program], check=True, capture_output=True, text=True).stdout
    found: dict[tuple[int, ...], list[str]] = {}
    for line in table.splitlines():
        match = re.search(r"\*UND\*.*\(?GLIBC_([\d.]+)\)?\s+(\S+)$", line)
        if match:
            found.setdefault(tuple(map(int, match[1].split("."))), []).append(match[2])
    return found


def foreign_libraries(program: str) -> list[str]:
    headers = subprocess.run(["objdump", "-p", program], check=True, capture_output=True, text=True).stdout
    return [name for name in re.findall(r"NEEDED\s+(\S+)", headers) if not LIBRARIES.fullmatch(name)]


def main() -> int:
    maximum, *programs = sys.argv[1:] or [""]
    if not programs:
        sys.exit(__doc__)
    is_wrong = False
    for program in programs:
        needed = versions(program)
        if not needed:
            print(f"check-glibc: {program} takes no symbol from glibc: it is not a program that packages are made of")
            is_wrong = True
            continue
        newest = max(needed)
        text = ".".join(map(str, newest))
        if newest > tuple(map(int, maximum.split("."))):
            print(f"check-glibc: {program} needs glibc {text}, more than {maximum}: {', '.join(needed[newest])}")
            is_wrong = True
        else:
            print(f"check-glibc: {program} needs glibc {text}, at most {maximum} is allowed")
        for library in foreign_libraries(program):
            print(f"check-glibc: {program} needs {library}, which no package brings")
            is_wrong = True
    return is_wrong


if __name__ == "__main__":
    sys.exit(main())
