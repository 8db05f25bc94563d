"""The page in a real browser: what a person sees while rows come in."""

import io
import json
import os
import re
import shutil

import numpy as np
import pytest
from matplotlib.image import imread

from running_service import as_csv, make_map, rough_survey, running, send, survey

BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
HOW_TO = "no browser is here: install Debian's chromium-headless-shell"

if BROWSER is None and "CI" in os.environ:
    raise RuntimeError(HOW_TO)
if BROWSER is None:
    pytest.skip(HOW_TO, allow_module_level=True)

sync_api = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.xdist_group("browser")  # one browser and one service for all of them

SECONDS = 120_000  # a busy machine is slow; what must not happen is checked at once
NAMES_OF_THREE = ["lon", "lat", "depth", "temperature"]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("maps")) as service:
        learn(service.client, make_map(service.client, "lake"), survey(300))
        learn(service.client, make_map(service.client, "line", inputs=["x"], target="y"), line(100), ["x", "y"])
        ocean = make_map(service.client, "ocean", inputs=NAMES_OF_THREE[:-1], target="temperature")
        learn(service.client, ocean, survey(200, d=3), NAMES_OF_THREE)
        make_map(service.client, "empty")
        yield service


def learn(client, path, rows, names=("east", "north", "depth")):
    answer = send(client, f"{path}/rows", as_csv(rows, names), params={"wait": "learned"})
    assert answer.status_code == 200, answer.text


def line(n):
    x = np.linspace(0.0, 10.0, n)
    return np.column_stack([x, np.sin(x)])


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, service):
    """Open a map in a page of its own. At the end: no error in the console, and no request to another host."""
    opened, faults = [], []

    def open_(name="", **options):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
        context.set_default_timeout(SECONDS)
        page = context.new_page()
        page.on("console", lambda message: message.type == "error" and faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: request.url.startswith((service.url, "data:")) or faults.append(request.url))
        page.goto(f"{service.url}/#{name}")
        opened.append(context)
        return page

    yield open_
    for context in opened:
        context.close()
    assert faults == []


def pixels(page):
    """How many pixels of the map are drawn, and their mean colour."""
    script = """() => {
        let [n, red, green, blue] = [0, 0, 0, 0];
        for (const canvas of document.querySelectorAll("canvas.leaflet-tile")) {
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            for (let i = 0; i < data.length; i += 4) {
                if (data[i + 3] > 0) { n += 1; red += data[i]; green += data[i + 1]; blue += data[i + 2]; }
            }
        }
        return [n, red / n, green / n, blue / n];
    }"""
    return page.evaluate(script)


POLLING = 50  # milliseconds between two looks at all pixels; in each frame, the default, they would take all the time


def wait_until_drawn(page):
    script = """() => [...document.querySelectorAll("canvas.leaflet-tile")].some((canvas) =>
        canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0))"""
    page.wait_for_function(script, polling=POLLING)


def wait_until_refined(page):
    """Until all nodes of all tiles are drawn."""
    page.wait_for_function("() => !document.querySelector('canvas.leaflet-tile:not([data-nodes=\"65\"])')")
    wait_for_a_frame(page)


def wait_for_a_frame(page):
    page.evaluate("() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))")


def test_a_map_is_drawn_with_its_colour_bar(open_page):
    page = open_page("lake")
    wait_until_drawn(page)
    assert pixels(page)[0] > 10_000
    legend = page.locator("#legend")
    assert "depth" in legend.inner_text()
    low, middle, high = (float(text) for text in legend.locator("span").all_inner_texts())
    assert 3.0 < low < middle < high < 7.5
    assert page.locator("#rows").inner_text() == "300"


def test_rows_that_a_client_posts_appear_without_reload(open_page, service):
    path = make_map(service.client, "growing")
    page = open_page("growing")
    page.wait_for_function("() => document.querySelector('#message').innerText.includes('nothing yet')")
    learn(service.client, path, survey(200))
    wait_until_drawn(page)
    page.wait_for_function("() => document.querySelector('#rows').innerText === '200'")
    before = pixels(page)
    learn(service.client, path, survey(200, seed=1) * [1.0, 1.0, -1.0])  # another field at the same places
    page.wait_for_function("() => document.querySelector('#rows').innerText === '400'")
    wait_for_other_colours(page, before)


def wait_for_other_colours(page, before):
    """Until the mean colour is not that of the pixels before; an error if it takes too long."""
    for _ in range(600):
        if pixels(page)[1:] != before[1:]:
            return
        page.wait_for_timeout(POLLING)
    raise AssertionError("the colours stay as they were")


def test_only_tiles_on_changed_ground_are_fetched(open_page, service):
    path = make_map(service.client, "wide")
    learn(service.client, path, rough_survey(2000))
    page = open_page("wide")
    wait_until_drawn(page)
    page.wait_for_function("() => !document.querySelector('canvas.leaflet-tile:not([data-nodes=\"65\"])')")
    n_tiles = page.locator("canvas.leaflet-tile").count()
    fetched = []
    page.on("response", lambda response: "/tiles/" in response.url and fetched.append(response.status))
    with page.expect_response(lambda response: "/tiles/" in response.url):
        learn(service.client, path, [[1.0, 1.0, 5.0]])
    page.wait_for_function("() => document.querySelector('#rows').innerText === '2,001'")
    page.wait_for_timeout(1000)  # tiles that should not be fetched
    assert 0 < len(fetched) < n_tiles


def test_layers_switch(open_page):
    page = open_page("lake")
    wait_until_drawn(page)
    seen = [pixels(page)[1:]]
    for layer in ("std", "model"):
        before = pixels(page)
        page.check(f"input[value={layer}]")
        wait_for_other_colours(page, before)
        wait_for_a_frame(page)
        seen.append(pixels(page)[1:])
    assert len({tuple(np.round(colour, 1)) for colour in seen}) == 3
    assert page.locator("#legend").is_hidden()  # numbers of models have no scale
    page.check("input[value=std]")
    page.wait_for_function("() => document.querySelector('#legend').innerText.includes('standard deviation')")


def pointed_value(page, service, name, inputs):
    """The value that the page shows, and that of `predict` at the same place."""
    page.wait_for_function("() => document.querySelector('#value').dataset.mean !== undefined")
    page.wait_for_timeout(300)
    shown = page.evaluate("({ ...document.querySelector('#value').dataset })")
    place = json.loads(shown["place"])
    answer = service.client.post(f"/maps/{name}/predict", json={key: [x] for key, x in zip(inputs, place, strict=True)})
    return float(shown["mean"]), answer.json()["mean"][0], page.locator("#value").inner_text()


def test_the_value_under_the_pointer_is_that_of_predict(open_page, service):
    page = open_page("lake")
    wait_until_drawn(page)
    page.mouse.move(430, 390)
    page.mouse.move(450, 400)
    shown, predicted, text = pointed_value(page, service, "lake", ["east", "north"])
    assert shown == predicted
    assert re.search(r"\d ± \d", text)
    assert "95 %" in text


def test_a_line_has_a_value_under_the_pointer_too(open_page, service):
    page = open_page("line")
    page.wait_for_selector("#line canvas")
    page.mouse.move(400, 400)
    page.mouse.move(430, 400)
    shown, predicted, _ = pointed_value(page, service, "line", ["x"])
    assert shown == predicted


def test_keyboard_alone_moves_the_map_and_switches_layers(open_page, service):
    page = open_page("lake")
    wait_until_drawn(page)
    page.focus("#surface")
    shown, predicted, _ = pointed_value(page, service, "lake", ["east", "north"])
    assert shown == predicted
    page.keyboard.press("ArrowRight")
    page.wait_for_function("(mean) => Number(document.querySelector('#value').dataset.mean) !== mean", arg=shown)
    page.focus("input[value=mean]")
    page.keyboard.press("ArrowRight")
    assert page.is_checked("input[value=std]")
    page.focus("#maps")
    page.keyboard.type("line")
    page.keyboard.press("Enter")
    page.wait_for_selector("#line canvas")


def test_a_map_of_three_inputs_has_a_slider(open_page):
    page = open_page("ocean")
    wait_until_drawn(page)
    before = pixels(page)
    slider = page.locator("#sliders input")
    slider.focus()
    page.keyboard.press("Home")
    assert "depth" in page.locator("#sliders").inner_text()
    wait_for_other_colours(page, before)


def test_degrees_have_the_shape_of_the_ground(open_page, service):
    path = make_map(service.client, "north", inputs=("lon", "lat"))
    rows = survey(100) * [0.001, 0.001, 1.0] + [10.0, 60.0, 0.0]
    learn(service.client, path, rows, ["lon", "lat", "depth"])
    page = open_page("north")
    wait_until_drawn(page)
    fetched = page.evaluate("() => performance.getEntriesByType('resource').map((entry) => entry.name)")
    tiles = [url for url in fetched if "/maps/north/tiles/" in url]
    assert tiles
    assert all("aspect=0.5" in url for url in tiles)  # a degree of longitude is half as long as one of latitude
    bar = page.locator(".leaflet-control-scale-line")
    metres, unit = bar.inner_text().split()
    tiles = "[...document.querySelectorAll('canvas.leaflet-tile')]"
    page.wait_for_function(f"() => {tiles}.every((canvas) => canvas.dataset.nodes)")
    wait_for_a_frame(page)
    ground = page.evaluate("""() => {  // the drawn ground from west to east, in pixels
        const columns = [...document.querySelectorAll("canvas.leaflet-tile")].flatMap((canvas) => {
            const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const { left, width: wide } = canvas.getBoundingClientRect();
            const drawn = [...data.keys()].filter((i) => i % 4 === 3 && data[i]);
            return drawn.map((i) => left + ((i >> 2) % width) * wide / width);
        });
        return columns.reduce((most, x) => Math.max(most, x)) - columns.reduce((least, x) => Math.min(least, x));
    }""")
    expected = (
        1.03 * np.ptp(rows[:, 0]) * 55_660 / ground * bar.bounding_box()["width"]
    )  # a margin of 1.5 % on each side
    assert unit == "m"
    assert float(metres) == pytest.approx(expected, rel=0.05)


def test_a_unit_in_a_name_is_no_html(open_page, service):
    names = ["x [<b>km</b>]", "y"]
    path = make_map(service.client, "names", inputs=names)
    learn(service.client, path, survey(50), [*names, "depth"])
    page = open_page("names")
    wait_until_drawn(page)
    bar = page.locator(".leaflet-control-scale-line")
    assert "<b>km</b>" in bar.inner_text()
    assert bar.locator("b").count() == 0


def transect(n, across=0.0):
    """Rows (n, 3) of one survey line from west to east, with a standard deviation `across` of its north."""
    east = np.linspace(0.0, 10.0, n)
    north = 3.1 + across * np.random.default_rng(0).normal(size=n)
    return np.column_stack([east, north, 5.0 + np.sin(east)])


def legend_numbers(page):
    return [float(text) for text in page.locator("#legend span").all_inner_texts()]


@pytest.mark.parametrize("across", [0.0, 1e-4, 1e-2])
def test_one_survey_line_is_drawn_as_a_strip(open_page, service, across):
    name = f"transect{across:g}"
    learn(service.client, make_map(service.client, name), transect(60, across))
    page = open_page(name)
    wait_until_drawn(page)
    wait_until_refined(page)
    assert pixels(page)[0] > 2000
    low, _, high = legend_numbers(page)
    assert 3.9 < low < 4.1
    assert 5.9 < high < 6.1


@pytest.mark.parametrize("scale", [1.0, 1.25])
def test_no_line_is_drawn_between_tiles(open_page, service, scale):
    rows = survey(150) * [0.05, 0.2, 1.0]  # all in a corner, so that the rest is pale
    learn(service.client, make_map(service.client, f"corner{scale}"), [*rows, [10.0, 10.0, 5.0]])
    page = open_page(f"corner{scale}", device_scale_factor=scale)
    page.uncheck("#track")
    wait_until_drawn(page)
    wait_until_refined(page)
    west = page.evaluate("""() => [...new Set([...document.querySelectorAll("canvas.leaflet-tile")]
        .map((canvas) => canvas.getBoundingClientRect().left))]""")
    picture = imread(io.BytesIO(page.screenshot(clip={"x": 0, "y": 50, "width": 600, "height": 700})))
    columns = [round(scale * x) for x in west if 20 < x < 580]
    assert columns
    for column in columns:
        around = picture[:, column - 3 : column + 4, :3]
        expected = np.linspace(around[:, 0], around[:, -1], 7, axis=1)
        assert np.median(np.abs(around - expected), axis=0).max() < 0.004


def test_a_survey_line_from_south_to_north_is_drawn_as_a_strip(open_page, service):
    learn(service.client, make_map(service.client, "northward"), transect(60)[:, [1, 0, 2]])
    page = open_page("northward")
    wait_until_drawn(page)
    wait_until_refined(page)
    assert pixels(page)[0] > 2000


def test_tiles_beside_the_ground_may_arrive_first(open_page, service):
    learn(service.client, make_map(service.client, "beside"), survey(100))
    held, beside, beside_is_seen = [], [], []

    def hold_ground(route):
        z, x, y = map(int, re.search(r"/beside/tiles/all/(-?\d+)/(-?\d+)/(-?\d+)", route.request.url).groups())
        width = 256 * 2.0**-z
        west, south = x * width, -(y + 1) * width
        is_ground = all(-width - 0.5 < edge < 10.5 for edge in (west, south))
        if is_ground and not beside_is_seen:
            held.append(route)
        else:
            beside.append(route)
            route.continue_()

    page = open_page("empty")
    page.route("**/maps/beside/tiles/**", hold_ground)
    page.select_option("#maps", "beside")
    page.wait_for_function("() => document.querySelector('canvas.leaflet-tile[data-nodes]')")
    wait_for_a_frame(page)
    assert held
    assert beside
    assert page.locator("#legend span").all_inner_texts() == ["-", "-", "-"]
    beside_is_seen.append(True)
    for route in held:
        route.continue_()
    wait_until_drawn(page)
    wait_until_refined(page)
    low, _, high = legend_numbers(page)
    assert 2.5 < low < high < 7.5


def test_the_colours_stay_if_the_ground_is_out_of_sight(open_page):
    page = open_page("lake")
    wait_until_drawn(page)
    wait_until_refined(page)
    before = legend_numbers(page)
    for _ in range(4):
        page.mouse.move(750, 400)
        page.mouse.down()
        page.mouse.move(50, 400, steps=3)
        page.mouse.up()
        page.wait_for_timeout(500)
    wait_until_refined(page)
    assert pixels(page)[0] == 0
    assert legend_numbers(page) == before


def test_tiles_of_the_map_before_leave_the_legend_alone(open_page):
    held = []
    page = open_page("empty")
    page.route("**/maps/lake/tiles/**", lambda route: held.append(route))
    page.select_option("#maps", "lake")
    page.wait_for_selector("canvas.leaflet-tile", state="attached")
    page.select_option("#maps", "line")
    page.wait_for_selector("#line canvas")
    for route in held:
        route.continue_()
    page.wait_for_timeout(1500)
    assert held
    assert page.locator("#legend").is_hidden()


# Whether a track or a boat is drawn, on the canvas above the tiles.
HAS_TRACK = """() => {
    const canvas = document.querySelector(".leaflet-overlay-pane canvas");
    if (!canvas) return false;
    return canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0);
}"""


def test_a_map_without_forecasts_or_track_shows_none(browser, tmp_path):
    """Forecasts and track are of rows since the start of the service."""
    with running(tmp_path) as first:
        learn(first.client, make_map(first.client, "lake"), survey(100))
    with running(tmp_path) as service:
        learn(service.client, make_map(service.client, "geo"), survey(100))
        page = browser.new_page()
        page.set_default_timeout(SECONDS)
        page.goto(f"{service.url}/#geo")
        page.wait_for_function("() => document.querySelector('#coverage').innerText.includes('%')")
        page.wait_for_function(HAS_TRACK, polling=POLLING)
        assert service.client.get("/maps/lake/track").json() == []
        page.select_option("#maps", "lake")
        page.wait_for_function("() => document.title.startsWith('lake')")
        wait_until_drawn(page)
        page.wait_for_timeout(1000)
        assert page.locator("#coverage").inner_text() == "-"
        assert not page.evaluate(HAS_TRACK)
        learn(service.client, "/maps/lake", survey(30, seed=1))
        page.wait_for_function("() => document.querySelector('#coverage').innerText.includes('%')")
        page.wait_for_function(HAS_TRACK, polling=POLLING)
        page.close()


def turned_survey():
    """Rows (360, 3) along lines that are turned by 30 degrees, so that the corners of their extent have no rows."""
    rng = np.random.default_rng(0)
    along, across = (each.ravel() for each in np.meshgrid(np.linspace(0.0, 10.0, 60), np.arange(6.0)))
    east, north = 0.866 * along - 0.5 * across, 0.5 * along + 0.866 * across
    return np.column_stack([east, north, 5.0 + np.sin(along) + np.cos(across) + 0.02 * rng.normal(size=360)])


# The colour of the drawn pixel that is nearest to the north-western corner.
CORNER = """() => {
    let [least, colour] = [Infinity, null];
    for (const canvas of document.querySelectorAll("canvas.leaflet-tile")) {
        const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const { left, top, width: wide } = canvas.getBoundingClientRect();
        for (let i = 0; i < data.length; i += 4) {
            const far = left + top + ((i >> 2) % width + Math.floor((i >> 2) / width)) * wide / width;
            if (data[i + 3] && far < least) [least, colour] = [far, [...data.slice(i, i + 3)]];
        }
    }
    return colour;
}"""


def test_ground_without_rows_does_not_set_the_colours_of_the_uncertainty(open_page, service):
    rows = turned_survey()
    learn(service.client, make_map(service.client, "turned"), rows)
    low, high = rows[:, :2].min(axis=0), rows[:, :2].max(axis=0)
    places = {"east": [*rows[:, 0], low[0]], "north": [*rows[:, 1], high[1]]}
    *at_rows, at_corner = service.client.post("/maps/turned/predict", json=places).json()["std"]
    page = open_page("turned")
    page.check("input[value=std]")
    wait_until_drawn(page)
    wait_until_refined(page)
    least, _, most = (float(text.removeprefix("≥")) for text in page.locator("#legend span").all_inner_texts())
    assert least <= min(at_rows) * 1.01
    assert max(at_rows) < most < 0.5 * at_corner
    back = re.findall(r"\d+", page.evaluate("getComputedStyle(document.querySelector('#surface')).backgroundColor"))
    assert np.abs(np.array(page.evaluate(CORNER)) - [float(each) for each in back[:3]]).max() < 50  # it is pale


def test_neighbouring_territories_have_different_colours(open_page):
    """Also if their numbers are such that colours by number alone would be alike."""
    page = open_page("lake")
    numbers = np.random.default_rng(0).permutation(64).reshape(8, 8).repeat(3, axis=0).repeat(3, axis=1)
    script = """async (owners) => {
        const { ModelColours } = await import("/page/colours.js");
        const colours = new ModelColours();
        colours.note(owners, 24);
        return owners.map((number) => colours.of(number));
    }"""
    colours = np.array(page.evaluate(script, numbers.ravel().tolist())).reshape(24, 24, 3)
    for axis in (0, 1):
        is_border = np.diff(numbers, axis=axis) != 0
        assert np.abs(np.diff(colours, axis=axis)).sum(axis=2)[is_border].min() > 40


def test_an_answer_for_the_slice_before_is_dropped(open_page):
    page, held = open_page("ocean"), []
    wait_until_drawn(page)
    wait_until_refined(page)
    page.locator("#sliders input").focus()
    is_first = re.compile(r"at=depth%3D0\.")  # the least depth
    page.route("**/maps/ocean/tiles/**", lambda r: held.append(r) if is_first.search(r.request.url) else r.continue_())
    page.keyboard.press("Home")
    page.wait_for_timeout(600)
    assert held
    page.keyboard.press("End")
    for route in held:
        route.continue_()
    other = open_page("ocean")
    wait_until_drawn(other)
    other.locator("#sliders input").focus()
    before = pixels(other)
    other.keyboard.press("End")
    wait_for_other_colours(other, before)
    for each in (page, other):
        each.wait_for_timeout(1500)
        for layer in ("std", "mean"):  # which makes the range of the colours anew
            each.check(f"input[value={layer}]")
            wait_until_refined(each)
    np.testing.assert_allclose(pixels(page), pixels(other), atol=0.5)


def test_tiles_that_could_not_be_fetched_are_fetched_later(browser, service):
    path = make_map(service.client, "shaky")
    learn(service.client, path, survey(100))
    page = browser.new_page()  # an aborted request is an error in its console
    page.set_default_timeout(SECONDS)
    page.goto(f"{service.url}/#shaky")
    wait_until_drawn(page)
    wait_until_refined(page)
    before, aborted = pixels(page), []
    page.route("**/tiles/**", lambda route: (aborted.append(route), route.abort()))
    learn(service.client, path, survey(200, seed=1) * [1.0, 1.0, -1.0])
    page.wait_for_function("() => document.querySelector('#rows').innerText === '300'")
    page.wait_for_timeout(800)
    assert aborted
    page.unroute("**/tiles/**")
    wait_for_other_colours(page, before)
    page.close()


def test_a_line_that_comes_late_is_not_drawn(open_page):
    page, held = open_page("empty"), []
    page.route("**/maps/line/grid**", lambda route: held.append(route), times=1)
    page.select_option("#maps", "line")
    page.wait_for_function("() => document.title.startsWith('line')")
    page.wait_for_timeout(300)
    page.select_option("#maps", "lake")
    wait_until_drawn(page)
    held[0].continue_()
    page.select_option("#maps", "line")
    page.wait_for_selector("#line canvas")
    page.wait_for_timeout(500)
    assert page.locator("#line .uplot").count() == 1


def test_the_map_that_was_chosen_last_is_shown(open_page):
    page, held = open_page("lake"), []
    wait_until_drawn(page)
    page.route("**/maps/line", lambda route: held.append(route), times=1)
    page.select_option("#maps", "line")
    page.select_option("#maps", "ocean")
    page.wait_for_function("() => document.title.startsWith('ocean')")
    held[0].continue_()
    page.wait_for_timeout(500)
    assert page.title().startswith("ocean")


def test_first_rows_of_an_empty_map_do_not_take_back_a_choice(open_page, service):
    path = make_map(service.client, "new")
    page, held = open_page("new"), []
    page.wait_for_function("() => document.querySelector('#message').innerText.includes('nothing yet')")
    page.route("**/maps/lake", lambda route: held.append(route), times=1)
    page.select_option("#maps", "lake")
    learn(service.client, path, survey(50))
    page.wait_for_timeout(500)
    held[0].continue_()
    page.wait_for_function("() => document.title.startsWith('lake')")


def test_an_empty_map_says_so(open_page):
    page = open_page("empty")
    page.wait_for_function("() => document.querySelector('#message').innerText.includes('nothing yet')")


def test_where_next_is_drawn_and_follows_the_rows(open_page, service):
    path = make_map(service.client, "reef")
    learn(service.client, path, survey(150))
    page = open_page("reef")
    wait_until_drawn(page)
    assert page.locator(".next").count() == 0
    page.get_by_label("where next").check()
    page.locator(".next").nth(19).wait_for()
    assert "reduce the uncertainty of depth" in page.locator("#gain").inner_text()
    where = "() => [...document.querySelectorAll('.next')].map((marker) => marker.style.transform).join()"
    before = page.evaluate(where)
    found = service.client.get(f"{path}/next").json()["wgpr"]["points"]
    learn(service.client, path, np.column_stack([found, np.zeros(len(found))]))
    page.wait_for_function(f"(before) => ({where})() !== before", arg=before)
    page.get_by_label("where next").uncheck()
    page.wait_for_function("() => document.querySelectorAll('.next').length === 0")
    assert not page.locator("#gain").is_visible()


def test_a_phone_shows_the_map_above_the_numbers_without_scrolling_sideways(open_page):
    page = open_page("lake", viewport={"width": 390, "height": 844}, color_scheme="dark", has_touch=True)
    wait_until_drawn(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    view, aside = page.locator("#view").bounding_box(), page.locator("aside").bounding_box()
    assert aside["y"] >= view["y"] + view["height"] - 1
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, re.findall(r"\d+", dark)[:3])) < 150


def test_a_tap_shows_the_value_under_the_finger(open_page):
    page = open_page("lake", viewport={"width": 390, "height": 844}, has_touch=True)
    wait_until_drawn(page)
    box = page.locator("#view").bounding_box()
    page.touchscreen.tap(box["x"] + 0.4 * box["width"], box["y"] + 0.45 * box["height"])
    page.wait_for_function("() => document.querySelector('#value').dataset.mean")
    page.wait_for_timeout(300)
    assert page.locator("#where").inner_text().lower() == "under the pointer"


def test_the_page_comes_back_when_the_service_is_started_again(browser, tmp_path):
    with running(tmp_path) as first:
        learn(first.client, make_map(first.client, "lake"), survey(100))
        page = browser.new_page()
        page.set_default_timeout(SECONDS)
        page.goto(first.url)
        page.wait_for_function("() => document.querySelector('#status').innerText === 'live'")
        port = first.port
    page.wait_for_function("() => document.querySelector('#status').innerText.includes('lost')")
    with running(tmp_path, port=port) as second:
        page.wait_for_function("() => document.querySelector('#status').innerText === 'live'")
        learn(second.client, "/maps/lake", survey(50, seed=1))
        page.wait_for_function("() => document.querySelector('#rows').innerText === '150'")
        page.close()


def test_a_service_with_a_token_asks_for_it(browser, tmp_path):
    with running(tmp_path, token="a token of the test") as service:
        learn(service.client, make_map(service.client, "lake"), survey(50))
        page = browser.new_page()
        page.set_default_timeout(SECONDS)
        page.goto(service.url)
        page.wait_for_selector("dialog[open]")
        page.fill("dialog input", "a token of the test")
        page.click("dialog button")
        page.wait_for_function("() => document.querySelector('#rows').innerText === '50'")
        page.close()


def test_a_request_that_is_refused_while_the_token_is_typed_does_not_clear_it(browser, tmp_path):
    with running(tmp_path, token="a token of the test") as service:
        learn(service.client, make_map(service.client, "lake"), survey(50))
        page = browser.new_page()
        page.set_default_timeout(SECONDS)
        page.goto(service.url)
        page.wait_for_selector("dialog[open]")  # asked for by the events
        page.fill("dialog input", "a token of the test")
        with page.expect_response("**/maps") as refused:
            page.evaluate("""() => { import("/page/service.js").then(({ request }) => request("maps")); }""")
        assert refused.value.status == 401
        page.wait_for_timeout(200)
        assert page.input_value("dialog input") == "a token of the test"
        page.click("dialog button")
        page.wait_for_function("() => document.querySelector('#rows').innerText === '50'")
        page.close()
