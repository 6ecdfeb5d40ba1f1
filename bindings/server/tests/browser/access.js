// What makes a page inaccessible: text without contrast, fields without a name, a page wider than the screen.
const problems = [];
const isShown = (element) => element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }) && element.getClientRects().length > 0;

const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
const rgba = (colour) => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
  return { rgb: [red, green, blue], alpha: alpha / 255 };
};
const luminance = (rgb) => {
  const [r, g, b] = rgb.map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const background = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const { rgb, alpha } = rgba(getComputedStyle(at).backgroundColor);
    if (alpha === 1) return rgb;
    if (alpha > 0) problems.push(`a translucent background: ${at.className}`);
  }
  return rgba(getComputedStyle(document.documentElement).backgroundColor).rgb;
};
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let checked = 0;
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement;
  if (!texts.currentNode.data.trim() || !isShown(element) || element.closest("script, noscript, option")) continue;
  if (element.matches(".skip") || element.closest("[disabled]")) continue;
  const style = getComputedStyle(element);
  const [light, dark] = [luminance(rgba(style.color).rgb), luminance(background(element))].sort((a, b) => b - a);
  const contrast = (light + 0.05) / (dark + 0.05);
  const isLarge = parseFloat(style.fontSize) >= 24;
  checked++;
  if (contrast < (isLarge ? 3 : 4.5)) problems.push(`contrast ${contrast.toFixed(2)}: ${element.className || element.tagName} "${texts.currentNode.data.trim()}"`);
  if (parseFloat(style.fontSize) < 11) problems.push(`small print: ${element.className} ${style.fontSize}`);
}
if (checked < 20) problems.push(`only ${checked} texts were checked`);

for (const field of document.querySelectorAll("input, select, textarea")) {
  if (isShown(field) && !field.labels?.length && !field.getAttribute("aria-label")) problems.push(`no label: ${field.id}`);
}
for (const button of document.querySelectorAll("button, a")) {
  if (isShown(button) && !button.innerText.trim() && !button.getAttribute("aria-label")) problems.push(`no name: ${button.outerHTML}`);
}
const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
for (const id of ids.filter((id, i) => ids.indexOf(id) !== i)) problems.push(`twice: ${id}`);
for (const element of document.querySelectorAll("[aria-labelledby], [aria-describedby]")) {
  if (!isShown(element)) continue;
  for (const name of ["aria-labelledby", "aria-describedby"]) {
    for (const id of (element.getAttribute(name) ?? "").split(" ").filter(Boolean)) {
      if (!document.getElementById(id)) problems.push(`${name} names ${id}, which does not exist`);
    }
  }
}
if (document.documentElement.scrollWidth > innerWidth) problems.push(`wider than the screen: ${document.documentElement.scrollWidth} > ${innerWidth}`);
const level = document.querySelector("main:not([hidden])") ? 0 : 1;
if (level || document.querySelectorAll("h1").length !== 1) problems.push("no main element, or not one heading");
return problems;
