import subprocess
import sys

LOOK = """
import gc
from wirelake.pipeline.spark.daemon import warm
warm()
print(gc.get_freeze_count(), len(gc.get_objects()))
"""


def test_a_worker_does_not_look_for_garbage_in_what_it_was_forked_with() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], check=True, capture_output=True, text=True, timeout=300)
    frozen, looked_through = map(int, done.stdout.split())
    assert frozen > 100 * looked_through
