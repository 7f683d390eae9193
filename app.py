"""Start SpecViz: the page answers at once on recorded runs, the model loads behind it."""

import os
import sys

# Gradio asks the network for its version and reports usage unless told not to before it is imported.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
# It also keeps a record of every run, and makes a table of them all after each.
os.environ["GRADIO_ANALYTICS_MAX_EVENTS"] = "1"
os.environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"] = "1000000000"
if os.environ.get("SPACE_ID"):
    # A Space's own proxy, in the Space's private network, is believed where it says whom it speaks for.
    os.environ.setdefault("FORWARDED_ALLOW_IPS", "127.0.0.1,::1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16")

from spec_viz.models.home import settle

try:
    moved = settle()
except OSError as problem:
    sys.exit(f"SpecViz finds no folder for its caches ({problem}). Name one that can be written in XDG_CACHE_HOME.")
if moved:
    print(f"SpecViz: the usual cache folder cannot be written, so {moved} is used.")  # noqa: T201 - as below

from spec_viz.serving.gate import gate
from spec_viz.ui import settings
from spec_viz.ui.limits import SettingError

# Before Gradio is imported, which reads some of the settings then.
if os.environ.get(settings.PROCESSES, "1").strip() not in ("", "1"):
    print(f"SpecViz: one process serves, whatever {settings.PROCESSES} says. DEPLOY.md tells how several do.")  # noqa: T201 - as below
try:
    settings.tidy()
    settings.check()
    if __name__ == "__main__":
        settings.check_place()
except SettingError as problem:
    sys.exit(f"SpecViz: {problem}")

from spec_viz.models.weights import chosen_target
from spec_viz.ui import zero
from spec_viz.ui.arenas import share_arenas
from spec_viz.ui.page import build, launch_options
from spec_viz.ui.room import Room

share_arenas()
try:
    # On ZeroGPU the line `zero` comes first: there is no GPU before.
    settings.check_device()
except SettingError as problem:
    sys.exit(f"SpecViz: {problem}")
room = Room(target=chosen_target())
demo = build(room)

if __name__ == "__main__":
    if zero.HERE:
        print("SpecViz: here the model comes before the page, which takes about a minute.")  # noqa: T201 - as below
        room.load()
    try:
        demo.launch(**launch_options(room), prevent_thread_lock=True)
    except OSError:
        # Somebody was faster.
        sys.exit(f"SpecViz: {settings.taken()}")
    print(f"SpecViz: {demo.local_url}")  # noqa: T201 - the one line a person who starts it needs
    if servers := gate().servers:
        print(f"SpecViz: Serve may ask {', '.join(servers)}.")  # noqa: T201 - as above
    if not zero.HERE:
        room.warm()
    demo.block_thread()
