import subprocess
import sys


def test_asking_for_promptness_never_fails_and_keeps_the_policy() -> None:
    code = "import os; from rooftop.load.promptness import be_prompt; be_prompt(); " \
           "print(os.sched_getscheduler(0) == os.SCHED_OTHER, os.nice(0) <= 0)"
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True,
                          start_new_session=True)
    assert done.stdout.split() == ["True", "True"]
