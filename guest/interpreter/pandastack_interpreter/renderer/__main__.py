"""``python3 -m pandastack_interpreter.renderer``"""

import sys

from .server import main

sys.exit(main())
