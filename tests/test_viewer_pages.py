"""The pages themselves, in a headless Chromium: `make test-viewer`, which writes build/screenshots too.

Needs a browser, so it runs with --browser only, and fails, rather than skips, where there is none.
"""

import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import robots
from browser import Browser, differs, drawn, executable

import jaxrbd as rbd
from jaxrbd.viewer.viewer import Viewer

pytestmark = pytest.mark.browser
PICTURES = Path(__file__).parents[1] / "build" / "screenshots"


@pytest.fixture(scope="module")
def browser():
    assert executable() is not None, "there is no Chromium: apt-get install chromium"
    PICTURES.mkdir(parents=True, exist_ok=True)
    with Browser() as tab:
        yield tab


def forest():
    """Three different robots beside each other, each a tree of its own."""
    arm, legs, body = rbd.zoo.arm7(), rbd.zoo.quadruped(), rbd.zoo.humanoid()
    apart = lambda sys, x: sys.replace(q0=sys.q0.at[0].set(x))  # noqa: E731
    return rbd.combine(arm, apart(legs, 1.0), apart(body, -1.0))


ROBOTS = {
    "arm": lambda: robots.load(robots.PANDA, "fixed"),
    "quadruped": lambda: robots.load(robots.SOLO12, "free"),
    "humanoid": lambda: robots.load(robots.TALOS, "free"),
    "forest": forest,
}


@pytest.mark.parametrize("name", ROBOTS)
def test_a_live_page_shows_a_robot_and_its_joints_move(browser, name):
    sys = ROBOTS[name]()
    with Viewer(sys) as viewer:
        browser.open(viewer.url)
        browser.wait_for(f"document.body.innerText.includes({sys.name!r})")
        before = browser.still(PICTURES / f"{name}.png")
        assert drawn(before)
        posing = viewer.posing
        moved = [i for i, label in enumerate(posing.labels) if not label.startswith("root")]
        for i in moved[:: max(1, len(moved) // 6)]:
            slider = posing.sliders[i]
            slider.value = slider.max if slider.value < 0.5 * (slider.min + slider.max) else slider.min
        time.sleep(1.0)
        x = jnp.asarray([s.value for s in posing.sliders], sys.dtype)
        q = rbd.integrate(sys, jnp.asarray(posing.reference, sys.dtype), x)
        np.testing.assert_allclose(posing.q, q, atol=1e-5)  # joints follow
        after = browser.still(PICTURES / f"{name} moved.png")
        assert differs(before, after) > 2e-3
        assert not browser.problems


def test_a_slider_of_the_page_moves_the_joint(browser):
    """From the page to the System: the number field beside a slider."""
    sys = rbd.zoo.arm7()
    with Viewer(sys) as viewer:
        browser.open(viewer.url)
        browser.wait_for(f"document.body.innerText.includes({sys.joint_names[1]!r})")
        before = browser.still()
        browser.type_beside(sys.joint_names[1], "0.9")
        browser_end = time.monotonic() + 30
        while abs(viewer.posing.q[1] - 0.9) > 1e-6:
            assert time.monotonic() < browser_end, viewer.posing.q
            time.sleep(0.1)
        after = browser.still(PICTURES / "arm typed.png")
        assert differs(before, after) > 2e-3


def rollouts(sys, environments, steps=200, dt=5e-3):
    q = jnp.broadcast_to(sys.q0, (environments, sys.nq))
    v = jnp.asarray(0.5 * np.random.default_rng(0).standard_normal((environments, sys.nv)), sys.dtype)
    one = lambda s: rbd.rollout(sys, s, steps=steps, integrator=rbd.SemiImplicitEuler(dt=dt))  # noqa: E731
    return jax.jit(jax.vmap(one))(rbd.State(q, v)).value


def test_a_path_plays_with_ghost_overlays_and_curve(browser):
    sys = rbd.zoo.arm7()
    path = rollouts(sys, 4)
    ghost = rollouts(sys, 4, dt=4e-3)
    con = rbd.constraints.connect(sys, sys.frame_names[-1], q=sys.q0)
    lam = np.ones((200, 3)) * np.linspace(0, 1, 200)[:, None]
    with Viewer(sys, path, dt=5e-3, ghost=ghost, constraints=con, multipliers=lam) as viewer:
        for what in ("frames", "centres of mass", "constraints", "multipliers"):
            viewer.switch(what, True)
        viewer.player.plot("total")
        browser.open(viewer.url)
        browser.wait_for("document.body.innerText.includes('Play')")
        before = browser.still(PICTURES / "path.png")
        viewer.player.seek(0.8)
        after = browser.still(PICTURES / "path later.png")
        assert differs(before, after) > 2e-3
        browser.click_text("Play")
        browser.wait_for("document.body.innerText.includes('Pause')")
        time.sleep(1.0)
        assert viewer.player.playing
        browser.click_text("Pause")
        browser.wait_for("document.body.innerText.includes('Play')")


def test_a_broken_path_is_marked(browser):
    sys = rbd.zoo.quadruped()
    path = rollouts(sys, 2, steps=20)
    path = rbd.State(np.array(path.q), np.array(path.v))
    path.q[1, 5:] = np.nan
    with Viewer(sys, path, dt=5e-3) as viewer:
        viewer.player.seek(0.05)
        browser.open(viewer.url)
        browser.wait_for("document.body.innerText.includes('not finite from t = 0.025 s')")
        assert drawn(browser.still(PICTURES / "broken.png"))


def test_a_replay_plays_from_a_file_without_a_network(tmp_path):
    sys = robots.load(robots.SOLO12, "free")
    replay = rbd.viewer.save_html(sys, rollouts(sys, 4, steps=100), tmp_path / "run.html", dt=5e-3)
    PICTURES.mkdir(parents=True, exist_ok=True)
    with Browser(offline=True) as tab:
        tab.open(replay.path.as_uri())
        tab.wait_for("document.querySelectorAll('canvas').length > 0")
        end, first = time.monotonic() + 60, tab.picture()
        while not drawn(first) and time.monotonic() < end:
            time.sleep(0.3)
            first = tab.picture(PICTURES / "replay.png")
        changes = []
        for _ in range(8):  # it plays by itself
            time.sleep(0.25)
            changes.append(differs(first, tab.picture(PICTURES / "replay later.png")))
        assert max(changes) > 2e-3
        assert not tab.problems
