"""Install Spark 4.2 with delta-spark, so that a test can read the tables with them. Run by `./dev delta`.

delta-spark supports no later Spark, so they are in an environment of their own, .delta-spark. Needs Maven (mvn) with a
way to Maven Central. If the environment is missing, `./dev test` says that this was not tested.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".delta-spark"
PYTHON = FOLDER / "bin" / "python"
SPARK = "pyspark==4.2.*"
ARTIFACT = "delta-spark_2.13"
VERSION = "4.4.0"
POM = f"""<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>io.delta</groupId>
      <artifactId>{ARTIFACT}</artifactId>
      <version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


def main() -> int:
    maven = shutil.which("mvn")
    if maven is None:
        print("delta-spark comes from Maven Central, which needs Maven (Debian package maven)", file=sys.stderr)
        return 1
    shutil.rmtree(FOLDER, ignore_errors=True)
    try:
        _install(maven)
    except subprocess.CalledProcessError as error:
        shutil.rmtree(FOLDER, ignore_errors=True)  # the tests take it for whole if it is there
        print(f"exit code {error.returncode}: {error.cmd[0]}", file=sys.stderr)
        return 1
    print(f"{SPARK} and delta-spark {VERSION} are in {FOLDER.name}")
    return 0


def _install(maven: str) -> None:
    subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
    subprocess.run([PYTHON, "-m", "pip", "install", "-qq", "--disable-pip-version-check", SPARK], check=True)
    (jars,) = FOLDER.glob("lib/python*/site-packages/pyspark/jars")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pom.xml").write_text(POM)
        # The other jars that it needs are those of Spark.
        chosen = ["-DincludeGroupIds=io.delta", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        subprocess.run([maven, "-q", "-B", "dependency:copy-dependencies", *chosen], cwd=folder, check=True)


if __name__ == "__main__":
    sys.exit(main())
