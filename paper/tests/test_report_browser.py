"""The page of the report in a real browser, from the file system."""

import json
import shutil
import time

import pytest
from cocd_paper.report.page import page
from cocd_paper.report.read import read
from cocd_paper.report.sections import sections
from report_rows import everything, run_row, training, write

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="there is no chromium with its chromedriver"
)

FLAGS = (
    *("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run"),
    *("disable-background-networking", "disable-component-update", "disable-sync"),
    # A shared memory of a few MB, as containers have it, is too small for the page.
    *("disable-dev-shm-usage", "window-size=1280,900"),
)
PANEL = "figure[data-chart='table-main'] .panel"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    everything(folder, epochs=20)
    rows = read(folder)
    file = folder / "index.html"
    file.write_text(page(rows, sections(rows.results)), encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def shown(browser, address):
    """The page, freshly loaded. Whatever a test does, nothing may be said on the console."""
    browser.get(address)
    yield browser
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def find(browser, selector):
    return browser.find_element("css selector", selector)


def view(browser):
    """What the axes of the first panel show."""
    return json.loads(find(browser, f"{PANEL} > svg").get_attribute("data-view"))


def ticks(browser, axis):
    return [t.text for t in browser.find_elements("css selector", f"{PANEL}:first-child .t{axis}")]


def press(browser, act):
    find(browser, f"{PANEL} [data-act='{act}']").click()


def drag(browser, svg, start, end):
    actions = webdriver.ActionChains(browser, duration=50)
    actions.move_to_element_with_offset(svg, *start).click_and_hold()
    actions.move_to_element_with_offset(svg, *end).release().perform()


def waited(read, wanted):
    """What `read` gives once it is as wanted; what it gives after 30 seconds, if it is not."""
    end = time.monotonic() + 30
    while not wanted(found := read()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def centred(browser, selector):
    """The element, in the middle of the window."""
    element = find(browser, selector)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    return element


def test_curves_are_drawn_point_by_point(shown):
    curves = shown.find_elements("css selector", f"{PANEL}:first-child path.curve[data-name]")
    assert len(curves) == 7
    for curve in curves:
        assert curve.get_attribute("d").count("L") == 20  # 21 epochs
    assert len(shown.find_elements("css selector", "section > figure")) == len(
        shown.find_elements("css selector", "section > figure:has(path.curve[data-name])")
    )


def test_seeds_have_a_band_and_the_paper_a_line(shown):
    assert len(shown.find_elements("css selector", f"{PANEL}:first-child .band")) == 7
    assert len(shown.find_elements("css selector", f"{PANEL}:first-child g line.line")) == 3


def test_diverged_curves_are_marked(shown):
    assert len(shown.find_elements("css selector", f"{PANEL}:nth-child(2) .cross")) == 1


def test_dragging_zooms_and_a_double_click_resets(shown):
    svg = centred(shown, f"{PANEL} > svg")
    before, labels = view(shown), ticks(shown, "x")
    drag(shown, svg, (-60, -60), (60, 40))
    inside = view(shown)
    for axis in "xy":
        (low, high), (old_low, old_high) = inside[axis], before[axis]
        assert old_low < low < high < old_high
    assert ticks(shown, "x") != labels
    webdriver.ActionChains(shown, duration=50).double_click(svg).perform()
    assert view(shown) == before and ticks(shown, "x") == labels


def test_a_drag_along_one_axis_leaves_the_other(shown):
    svg = centred(shown, f"{PANEL} > svg")
    before = view(shown)
    drag(shown, svg, (-60, 0), (60, 2))
    after = view(shown)
    assert after["y"] == before["y"] and after["x"] != before["x"]


def test_the_wheel_zooms_once_the_chart_is_taken_hold_of(shown):
    svg = centred(shown, f"{PANEL} > svg")
    before = view(shown)
    origin = webdriver.common.actions.wheel_input.ScrollOrigin.from_element(svg)
    webdriver.ActionChains(shown).scroll_from_origin(origin, 0, -100).perform()
    assert view(shown) == before  # it scrolled the page
    svg = centred(shown, f"{PANEL} > svg")
    webdriver.ActionChains(shown, duration=50).click(svg).perform()
    webdriver.ActionChains(shown).scroll_from_origin(origin, 0, -100).perform()
    assert waited(lambda: view(shown)["x"], lambda x: x != before["x"]) != before["x"]


def test_buttons_and_keys_do_the_same(shown):
    svg = centred(shown, f"{PANEL} > svg")
    before = view(shown)
    press(shown, "in")
    by_button = view(shown)
    assert by_button["x"][1] - by_button["x"][0] == pytest.approx(
        0.6 * (before["x"][1] - before["x"][0])
    )
    press(shown, "right")
    assert view(shown)["x"][0] > by_button["x"][0]
    press(shown, "reset")
    assert view(shown) == before
    svg.send_keys("+")
    assert view(shown) == by_button
    svg.send_keys("0")
    assert view(shown) == before


def test_axes_can_be_logarithmic_or_not(shown):
    button = find(shown, f"{PANEL} [data-act='logY']")
    assert button.get_attribute("aria-pressed") == "true"  # 500 to 1.8: so it begins
    before = view(shown)
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    linear = view(shown)
    assert linear["y"][0] == 0 and linear["y"][1] == pytest.approx(10 ** before["y"][1])
    button.click()
    assert view(shown) == before


def test_a_legend_entry_hides_its_curve(shown):
    entry = find(shown, f"{PANEL} .legend button")
    name = find(shown, f"{PANEL} .legend button span").text
    selector = f'{PANEL}:first-child path.curve[data-name="{name}"]'
    assert len(shown.find_elements("css selector", selector)) == 1
    entry.click()
    assert shown.find_elements("css selector", selector) == []
    assert entry.get_attribute("aria-pressed") == "false"
    entry.click()
    assert len(shown.find_elements("css selector", selector)) == 1


def test_the_tooltip_has_the_values_of_the_rows(shown):
    svg = centred(shown, f"{PANEL} > svg")
    right = svg.size["width"] // 2 - 16
    webdriver.ActionChains(shown, duration=50).move_to_element_with_offset(svg, right, 0).perform()
    tip = find(shown, "#tip")
    assert tip.is_displayed()
    assert "epochs: 20" in tip.text
    assert "CoCD (paper's settings): 25.9 (24.864 to 26.936, 3 seeds)" in tip.text
    assert "paper: CoCD 31.18" in tip.text


def test_settings_can_be_unfolded(shown):
    details = shown.find_elements("css selector", "#table-main > details")[-1]
    assert details.get_attribute("open") is None
    details.find_element("css selector", "summary").click()
    assert len(details.find_elements("css selector", "tbody tr")) == 27


def test_charts_in_a_fold_are_drawn_when_it_is_opened(shown):
    details = find(shown, "#table-main > details")
    assert details.find_elements("css selector", ".panel") == []
    details.find_element("css selector", "summary").click()
    # The page is told of the toggling, and then of the sizes, when the browser gets to it.
    script = """
        return [...arguments[0].querySelectorAll(".panel > svg")].map(
            svg => [svg.viewBox.baseVal.width, svg.clientWidth]);
    """
    widths = waited(lambda: shown.execute_script(script, details), fit)
    assert len(widths) == 2 and fit(widths)


def fit(widths):
    return widths and all(width == there > 0 for width, there in widths)


def test_colours_can_be_changed(shown):
    colour = "return getComputedStyle(document.body).backgroundColor"
    before = shown.execute_script(colour)
    find(shown, "#theme").click()
    assert shown.execute_script(colour) != before


@pytest.mark.parametrize("width", [1280, 420])
def test_nothing_is_wider_than_the_window(shown, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    shown.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        root = "document.documentElement"
        assert shown.execute_script("return innerWidth") == width
        assert shown.execute_script(f"return {root}.scrollWidth - {root}.clientWidth") == 0
    finally:
        shown.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_one_epoch_of_one_run_is_enough(browser, tmp_path):
    write(tmp_path, training(run_row(epochs=5), 25.0, done=0, end=""))
    rows = read(tmp_path)
    file = tmp_path / "index.html"
    file.write_text(page(rows, sections(rows.results)), encoding="utf-8")
    browser.get(file.as_uri())
    assert find(browser, f"{PANEL} .dotted").is_displayed()
    # Epoch 0 has no logarithm.
    assert browser.find_elements("css selector", f"{PANEL} [data-act='logX']") == []
    press(browser, "logY")
    press(browser, "out")
    assert find(browser, f"{PANEL} .dotted").is_displayed()
    assert browser.get_log("browser") == []
