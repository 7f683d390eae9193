"""Whether a known vulnerability is in what is installed here: pip-audit over the environment, asked of OSV.

Ends with 1 where one is found that KNOWN doesn't name, and with 0 otherwise. Where the database cannot be asked it says
so in words that cannot be overlooked: nothing was audited then, and the answer is not "none found".
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig

# Vulnerabilities that stay for now: its number, and why it does no harm here.
KNOWN: dict[str, str] = {}

# The project itself is in no index, and torch's builds say with a + for which device they are.
COMMAND = [sys.executable, "-m", "pip_audit", "--skip-editable", "--vulnerability-service", "osv"]
COMMAND += ["--progress-spinner", "off", "--format", "json"]
SIGN = "!" * 78


def main(more: list[str]) -> int:
    """Audit this environment, or what `more` arguments for pip-audit name; the exit code."""
    where = [] if "--path" in more else ["--path", sysconfig.get_path("purelib")]
    done = subprocess.run([*COMMAND, *where, *more], capture_output=True, text=True, check=False)
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        reason = (done.stderr.strip().splitlines() or [f"pip-audit ended with {done.returncode}"])[-1]
        return _unaudited(f"the database is not reachable, nothing was audited.\n  {reason[:300]}")
    faults = [(each, fault) for each in found for fault in each.get("vulns", [])]
    new = [(each, fault) for each, fault in faults if not {fault["id"], *fault["aliases"]} & KNOWN.keys()]
    for each, fault in new:
        fixed = ", ".join(fault["fix_versions"]) or "no version yet"
        print(f"{each['name']} {each['version']}: {fault['id']} {' '.join(fault['aliases'])}, mended in {fixed}")
    if new:
        print(
            f"{len(new)} known vulnerabilities. Raise the versions, or name them with a reason in KNOWN ({__file__})."
        )
        return 1
    skipped = [each["name"] for each in found if "skip_reason" in each]
    if skipped:
        _unaudited(f"{len(skipped)} of {len(found)} packages: {', '.join(skipped)[:300]}")
    if audited := len(found) - len(skipped):
        excused = f" besides {', '.join(sorted(KNOWN))}" if faults else ""
        print(f"{audited} packages audited, no known vulnerability{excused}.")
    return 0


def _unaudited(why: str) -> int:
    print(f"{SIGN}\nNOT AUDITED: {why}\n{SIGN}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
