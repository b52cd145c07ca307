const tip = document.getElementById("tip");
const line = (colour, text) => {
  const row = document.createElement("div"), dot = document.createElement("span");
  dot.className = "dot"; dot.style.background = colour;
  row.append(dot, text);
  return row;
};
for (const svg of document.querySelectorAll("svg[data-chart]")) {
  const data = JSON.parse(svg.dataset.chart), cursor = svg.querySelector(".cursor");
  const show = value => data.percent ? (100 * value).toFixed(1) + " %" : value.toFixed(3);
  const hide = () => { tip.style.visibility = "hidden"; cursor.setAttribute("visibility", "hidden"); };
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", event => {
    const x = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
    const near = data.curves.filter(c => c.points.length).map(c => ({...c, point: c.points.reduce(
      (a, b) => Math.abs(b[2] - x) < Math.abs(a[2] - x) ? b : a)}));
    if (!near.length) return hide();
    const at = near.reduce((a, b) => Math.abs(b.point[2] - x) < Math.abs(a.point[2] - x) ? b : a).point;
    near.sort((a, b) => a.point[3] - b.point[3]);
    const title = document.createElement("b");
    title.textContent = at[0].toLocaleString("en") + " evaluations";
    tip.replaceChildren(title, ...near.map(c => line(c.colour, c.name + ": " + show(c.point[1]))),
      ...data.ends.map(e => line(e.colour, e.name + ", at its end: " + show(e.value))));
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, at[2]);
    cursor.setAttribute("visibility", "visible");
    const left = Math.min(event.clientX + 16, innerWidth - tip.offsetWidth - 8);
    tip.style.left = left + "px"; tip.style.top = event.clientY + 16 + "px";
    tip.style.visibility = "visible";
  });
}
