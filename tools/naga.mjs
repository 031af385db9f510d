// Validate WGSL kernels and translate them to Metal's language with naga, without a GPU.
// Called by tests/webgpu/test_naga.py: node tools/naga.mjs PACKAGE < kernels.json
// PACKAGE is the folder of the npm package naga-wasm, which "make test-all" installs. Standard input
// is an object of names and WGSL texts. Standard output is one of names and {msl} or {error}.

import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const entry = join(resolve(process.argv[2]), "dist", "node.js");
const { translate } = await import(pathToFileURL(entry).href);

function translated(source) {
  try {
    return { msl: translate({ from: "wgsl", to: "msl", source }) };
  } catch (error) {
    return { error: error.formatted ? `${error.kind}: ${error.formatted}` : String(error) };
  }
}

const kernels = JSON.parse(readFileSync(0, "utf8"));
const results = Object.entries(kernels).map(([name, text]) => [name, translated(text)]);
process.stdout.write(JSON.stringify(Object.fromEntries(results)));
