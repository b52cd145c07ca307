"""The page of the report in a real browser, from the file system."""

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
CHART = "chart-table-main"


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
    """The page, freshly loaded and drawn. No test may leave a message on the console."""
    browser.get(address)
    figures = len(browser.find_elements("css selector", "section > figure"))
    waited(lambda: drawn(browser), lambda count: count == figures)
    yield browser
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def drawn(browser):
    """How many charts have curves."""
    return len(browser.find_elements("css selector", "section > figure:has(.scatterlayer .trace)"))


def ask(browser, script):
    """What the script gives for the chart of the main table."""
    return browser.execute_script(f"const chart = document.getElementById('{CHART}'); {script}")


def view(browser):
    return ask(
        browser, "return {x: chart._fullLayout.xaxis.range, y: chart._fullLayout.yaxis.range}"
    )


def waited(read, wanted):
    """What `read` gives once it is as wanted; what it gives after 30 seconds, if it is not."""
    end = time.monotonic() + 30
    while not wanted(found := read()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def plot_area(browser):
    """The first pair of axes, in the middle of the window."""
    area = browser.find_element("css selector", f"#{CHART} .draglayer .xy .nsewdrag")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", area)
    return area


def test_all_charts_are_drawn(shown):
    figures = len(shown.find_elements("css selector", "section > figure"))
    assert figures and drawn(shown) == figures


def test_curves_have_the_values_of_the_rows(shown):
    trace = ask(
        shown,
        'const t = chart._fullData.find(t => t.name === "CoCD (paper\'s settings)");'
        "return [Array.from(t._input.x._inputArray || t.x), Array.from(t.y)];",
    )
    assert len(trace[0]) == 21 and trace[1][-1] == pytest.approx(25.9)


def test_dragging_zooms_and_a_double_click_resets(shown):
    area, before = plot_area(shown), view(shown)
    actions = webdriver.ActionChains(shown, duration=50)
    actions.move_to_element_with_offset(area, -60, -40).click_and_hold()
    actions.move_to_element_with_offset(area, 60, 40).release().perform()
    inside = waited(lambda: view(shown), lambda now: now != before)
    for axis in "xy":
        (low, high), (old_low, old_high) = inside[axis], before[axis]
        assert old_low < low < high < old_high
    webdriver.ActionChains(shown, duration=50).double_click(area).perform()
    assert waited(lambda: view(shown), lambda now: now != inside) != inside


def test_axes_can_be_logarithmic_or_not(shown):
    kind = "return chart._fullLayout.yaxis.type"
    assert ask(shown, kind) == "log"  # 500 to 1.8: so it begins
    plot_area(shown)
    shown.find_elements("css selector", f"#{CHART} .updatemenu-button")[0].click()
    assert waited(lambda: ask(shown, kind), lambda now: now == "linear") == "linear"


def test_settings_can_be_unfolded(shown):
    details = shown.find_elements("css selector", "#table-main > details")[-1]
    details.find_element("css selector", "summary").click()
    assert len(details.find_elements("css selector", "tbody tr")) == 27


@pytest.mark.parametrize("width", [1280, 420])
def test_nothing_is_wider_than_the_window(shown, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    shown.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        root = "document.documentElement"
        wider = f"return {root}.scrollWidth - {root}.clientWidth"
        assert waited(lambda: shown.execute_script(wider), lambda over: over == 0) == 0
    finally:
        shown.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_one_epoch_of_one_run_is_enough(browser, tmp_path):
    write(tmp_path, training(run_row(epochs=5), 25.0, done=0, end=""))
    rows = read(tmp_path)
    file = tmp_path / "index.html"
    file.write_text(page(rows, sections(rows.results)), encoding="utf-8")
    browser.get(file.as_uri())
    points = ("css selector", f"#{CHART} .scatterlayer .point")
    assert waited(lambda: browser.find_elements(*points), bool)
    assert browser.get_log("browser") == []
