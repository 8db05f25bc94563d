"""Three programs that know nothing of each other but the address of a service: a sonar, the service, and a planner.

    python examples/live.py [picture.png]

The boat begins with one line across a bay. Then the planner asks the service where the map is most uncertain, and
tells the boat, which goes there and sends its soundings on the way. `live.py sonar URL` reads places from standard
input, and `live.py planner URL` prints them; URL is that of a map, such as http://127.0.0.1:8000/maps/bay. It needs
`pip install ".[serve]"`.
"""

import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import numpy as np

from wgpr.client import Map

N_LEGS = 8
BAY = 1000.0  # metres, east and north


def depth(places):
    """Metres at places (n, 2): a bay with a channel and a reef."""
    east, north = places.T / BAY
    channel = 6.0 * np.exp(-(((north - 0.5 - 0.15 * np.sin(6.0 * east)) / 0.08) ** 2))
    reef = -4.0 * np.exp(-((east - 0.7) ** 2 + (north - 0.75) ** 2) / 0.004)
    return 8.0 + 4.0 * east + channel + reef


def soundings(start, stop, rng):
    """Places (n, 2) every 10 m from start to stop, and depths (n,) with 10 cm of noise."""
    n = max(2, round(np.linalg.norm(stop - start) / 10.0))
    places = start + np.linspace(0.0, 1.0, n)[:, None] * (stop - start)
    return places, depth(places) + 0.1 * rng.normal(size=n)


def sonar(url):
    """Drive to each place that is read from standard input, and send the soundings on the way."""
    rng, here = np.random.default_rng(0), np.array([0.0, 0.0])
    with Map(url) as bay:
        bay.create(["east [m]", "north [m]"], "depth [m]")
        for line in sys.stdin:
            there = np.array([float(part) for part in line.split()])
            bay.partial_fit(*soundings(here, there, rng), wait=True)
            here = there
            print("arrived", flush=True)


def planner(url, n_legs=N_LEGS):
    """Print places one by one, and wait after each until somebody says that the boat has arrived."""
    candidates = np.stack(np.meshgrid(*2 * [np.linspace(0.0, BAY, 21)]), axis=-1).reshape(-1, 2)
    print(BAY, BAY, flush=True)
    with Map(url) as bay:
        for _ in range(n_legs):
            sys.stdin.readline()
            _, std = bay.predict(candidates, return_std=True, latent=True)
            print(*candidates[np.argmax(std)], flush=True)
        sys.stdin.readline()


def together(picture):
    """Start all three, and connect the planner with the boat."""
    serve = [sys.executable, "-c", "from wgpr.cli.app import main; main()", "serve", "--port", "0"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        service = stack.enter_context(subprocess.Popen([*serve, folder], stderr=subprocess.PIPE, text=True))
        stack.callback(service.terminate)
        url = re.search(r"http://[\d.:]+", service.stderr.readline())[0] + "/maps/bay"
        Thread(target=service.stderr.read, daemon=True).start()  # its log, so that it need not wait
        with (
            subprocess.Popen([sys.executable, __file__, "sonar", url], **pipes) as boat,
            subprocess.Popen([sys.executable, __file__, "planner", url], **pipes) as plan,
        ):
            for place in plan.stdout:
                print(place.strip(), file=boat.stdin, flush=True)
                print("boat:", boat.stdout.readline().strip(), "at", place.strip())
                print("arrived", file=plan.stdin, flush=True)
        judge(url, folder, picture)


def judge(url, folder, picture):
    """Compare the map with the bay, and draw it."""
    places = np.random.default_rng(1).uniform(0.0, BAY, (2000, 2))
    with Map(url) as bay:
        about, errors = bay.info(), bay.predict(places) - depth(places)
        bay.download(Path(folder) / "bay.map")
    print(f"{about['rows_seen']} soundings, {about['models']} models, RMSE {np.sqrt(np.mean(errors**2)):.2f} m")
    if picture:
        draw(Path(folder) / "bay.map", picture)


def draw(map_file, picture):
    import matplotlib.pyplot as plt

    import wgpr
    from wgpr.plots import plot_map, plot_uncertainty

    model = wgpr.load(map_file)
    _, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    plot_map(model, ax=axes[0])
    plot_uncertainty(model, ax=axes[1])
    plt.savefig(picture)


if __name__ == "__main__":
    roles = {"sonar": sonar, "planner": planner}
    if len(sys.argv) == 3 and sys.argv[1] in roles:
        roles[sys.argv[1]](sys.argv[2])
    else:
        together(sys.argv[1] if len(sys.argv) > 1 else None)
