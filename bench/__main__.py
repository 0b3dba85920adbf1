"""`python -m bench` is `python bench/run.py`: the modules here know each other by plain names."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    from run import main

    sys.exit(main())
