// The page: what is drawn or dropped goes to the server, which prepares the picture. The visitor's GPU
// computes the network (gpu.js), or the server where there is none.
"use strict";

const MOST_MAPS = 16, CELL = 84;  // maps shown of a layer, and the side of each in pixels
const board = document.getElementById("board"), pen = board.getContext("2d");
const answers = document.getElementById("answers"), maps = document.getElementById("maps");
const error = document.getElementById("error"), where = document.getElementById("where");
let drawing = false, down = false, latest = 0, classes = [], network = null;

function clear() {
  pen.fillStyle = "black";
  pen.fillRect(0, 0, board.width, board.height);
  answers.replaceChildren();
  maps.replaceChildren();
  error.textContent = "";
}

function show(found) {
  answers.replaceChildren(...found.classes.map((name, i) => {
    const row = document.createElement("div"), share = found.probabilities[i];
    row.className = "row";
    const label = document.createElement("span"), bar = document.createElement("span");
    const number = document.createElement("span");
    label.textContent = name;
    bar.className = "bar";
    bar.style.width = `${100 * share}%`;
    number.textContent = `${(100 * share).toFixed(1)} %`;
    row.append(label, bar, number);
    return row;
  }));
  maps.replaceChildren(...found.figures);
}

function made(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// The answer of the server: pictures of the first convolutions.
function figuresOf(urls) {
  return Object.entries(urls).map(([name, src]) => made("figure", {},
    made("figcaption", { textContent: name }), made("img", { src, alt: `feature maps of ${name}` })));
}

// The answer of the GPU: each layer with its maps and the kernels that computed them.
function figureOf(layer, values) {
  const [first, last] = layer.commands, { commands, sources } = network.program;
  const kernels = commands.slice(first, last).filter((command) => "source" in command);
  const count = kernels.length === 1 ? "a kernel" : `${kernels.length} kernels`;
  const title = `${layer.name}: ${layer.title}`, size = layer.shape.slice(1).join(" × ");
  return made("figure", {}, made("figcaption", { textContent: title }), canvasOf(layer, values),
    made("details", {},
      made("summary", { textContent: `${size} numbers by ${count} in WGSL` }),
      ...kernels.flatMap(({ source, workgroups }) => kernelOf(sources[source], workgroups))));
}

function kernelOf(source, workgroups) {
  const at = source.lastIndexOf("\n\n", source.indexOf("@compute")) + 2;
  const text = (textContent) => made("pre", { textContent, tabIndex: 0 });
  return [
    made("p", { textContent: `${workgroups.join(" × ")} workgroups of this kernel:` }),
    text(source.slice(at)),
    made("details", {}, made("summary", { textContent: "What it calls" }), text(source.slice(0, at))),
  ];
}

// Draws the first maps of (1, C, H, W) or the numbers of (1, F) side by side, each map from 0 to 255.
function canvasOf(layer, values) {
  const [channels, height, width] = layer.shape.length === 4 ? layer.shape.slice(1)
    : [1, 1, values.length];
  const count = Math.min(channels, MOST_MAPS), canvas = made("canvas", {});
  const times = Math.max(1, Math.floor(CELL / Math.max(height, width)));
  canvas.width = count * (width + 1) * times;
  canvas.height = Math.max(height * times, 8);
  canvas.role = "img";
  canvas.ariaLabel = `feature maps of ${layer.name}`;
  const pen = canvas.getContext("2d");
  for (let channel = 0; channel < count; channel++) {
    const map = values.subarray(channel * height * width, (channel + 1) * height * width);
    const low = Math.min(...map), span = Math.max(...map) - low;
    map.forEach((value, i) => {
      const grey = span > 0 ? Math.floor(255 * (value - low) / span) : 0;
      const x = channel * (width + 1) + i % width, y = Math.floor(i / width);
      pen.fillStyle = `rgb(${grey} ${grey} ${grey})`;
      pen.fillRect(x * times, y * times, times, height === 1 ? canvas.height : times);
    });
  }
  return canvas;
}

async function post(path, blob) {
  const reply = await fetch(path, { method: "POST", body: blob });
  return reply.ok && path === "/prepare" ? reply.arrayBuffer() : reply.json();
}

async function askGpu(blob) {
  const picture = await post("/prepare", blob);
  if (picture.error) return picture;
  const { layers, probabilities } = await network.run(new Float32Array(picture));
  const order = [...classes.keys()].sort((a, b) => probabilities[b] - probabilities[a]).slice(0, 5);
  return {
    classes: order.map((i) => classes[i]),
    probabilities: order.map((i) => probabilities[i]),
    figures: layers.map((values, i) => figureOf(network.program.layers[i], values)),
  };
}

async function askServer(blob) {
  const found = await post("/predict", blob);
  return found.error ? found : { ...found, figures: figuresOf(found.maps) };
}

async function ask(blob) {
  const mine = ++latest;
  let found = null;
  try {
    if (network) found = await askGpu(blob);
  } catch (reason) {
    withoutGpu(reason.message);
  }
  found = found || await askServer(blob);
  if (mine !== latest) return;  // a later request replaces this one
  error.textContent = found.error || "";
  if (!found.error) show(found);
}

function withoutGpu(reason) {
  network = null;
  where.textContent = `Computed by the server, because ${reason}.`;
}

async function findGpu() {
  try {
    network = await Network.open();
    where.textContent = `Computed by your GPU: ${network.name}.`;
    network.device.lost.then(({ message }) => withoutGpu(`the GPU was lost (${message})`));
  } catch (reason) {
    withoutGpu(reason.message);
  }
}

function showPicture(file) {
  const image = new Image();
  const reader = new FileReader();
  reader.onload = () => { image.src = reader.result; };
  image.onload = () => pen.drawImage(image, 0, 0, board.width, board.height);
  reader.readAsDataURL(file);
  ask(file);
}

function stroke(event) {
  if (!down || !drawing) return;
  const box = board.getBoundingClientRect();
  pen.lineWidth = 22;
  pen.lineCap = pen.lineJoin = "round";
  pen.strokeStyle = "white";
  pen.lineTo(event.clientX - box.left, event.clientY - box.top);
  pen.stroke();
}

board.addEventListener("pointerdown", (event) => {
  down = true;
  pen.beginPath();
  stroke(event);
});
board.addEventListener("pointermove", stroke);
addEventListener("pointerup", () => {
  if (down && drawing) board.toBlob(ask);
  down = false;
});
board.addEventListener("dragover", (event) => { event.preventDefault(); board.className = "over"; });
board.addEventListener("dragleave", () => { board.className = ""; });
board.addEventListener("drop", (event) => {
  event.preventDefault();
  board.className = "";
  if (event.dataTransfer.files.length) showPicture(event.dataTransfer.files[0]);
});
document.getElementById("file").addEventListener("change", (event) => {
  if (event.target.files.length) showPicture(event.target.files[0]);
});
document.getElementById("clear").addEventListener("click", clear);
fetch("/about").then((reply) => reply.json()).then((about) => {
  ({ drawing, classes } = about);
  if (drawing) document.getElementById("hint").textContent = "Draw, or drop a picture of: "
    + classes.join(", ");
});
findGpu();
clear();
