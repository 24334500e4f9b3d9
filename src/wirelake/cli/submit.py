"""Run `wirelake pipeline run` as the application of spark-submit, with its options: see docs/operations.md.

Spark's own settings are those of spark-submit. The pipeline's defaults apply to what they leave open.
"""

import sys

from wirelake.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["pipeline", "run"]
    main()
