"""Start SpecViz: the page answers at once on recorded runs, the model loads behind it."""

import os

# Gradio asks the network for its version and reports usage unless told not to before it is imported.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

from spec_viz.ui.page import build, launch_options
from spec_viz.ui.room import Room

room = Room()
demo = build(room)

if __name__ == "__main__":
    demo.launch(**launch_options(room), prevent_thread_lock=True)
    print(f"SpecViz: {demo.local_url}")  # noqa: T201 - the one line a person who starts it needs
    room.warm()
    demo.block_thread()
