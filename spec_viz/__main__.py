"""`python -m spec_viz`."""

import sys

from spec_viz.cli import main

sys.exit(main())
