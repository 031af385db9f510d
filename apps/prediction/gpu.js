// A network on the visitor's GPU. GET /program lists its commands, GET /weights has their data; both
// are made by gpu_program.py, with the kernels that needle runs itself. The page calls open and run.
"use strict";

const SLOT = 256;  // what the offset of a binding must be a multiple of, on every GPU

class Network {
  // Returns the network, ready to run; throws an Error that says why it cannot run here.
  static async open() {
    const adapter = navigator.gpu && await navigator.gpu.requestAdapter();
    if (!adapter) throw new Error("this browser offers no GPU (WebGPU)");
    const reply = await fetch("/program");
    if (!reply.ok) throw new Error(await reply.text());
    const program = await reply.json();
    const weights = await (await fetch("/weights")).arrayBuffer();
    const { maxBufferSize, maxStorageBufferBindingSize } = adapter.limits;
    const requiredLimits = { maxBufferSize, maxStorageBufferBindingSize };
    const device = await adapter.requestDevice({ requiredLimits });
    const network = new Network(adapter, device, program);
    await network.checked(() => network.prepare(weights));
    return network;
  }

  constructor(adapter, device, program) {
    Object.assign(this, { device, program, turn: Promise.resolve() });
    const { description, vendor, architecture } = adapter.info;
    this.name = description || [vendor, architecture].filter(Boolean).join(" ") || "unnamed";
  }

  // Calls a function; throws the error of validation or memory that its commands cause.
  async checked(commands) {
    for (const kind of ["validation", "out-of-memory"]) this.device.pushErrorScope(kind);
    const result = await commands();
    for (let i = 0; i < 2; i++) {
      const error = await this.device.popErrorScope();
      if (error) throw new Error(`the GPU refused a command (${error.message})`);
    }
    return result;
  }

  buffer(size, usage) {
    return this.device.createBuffer({ size, usage });
  }

  prepare(weights) {
    const { sources, sizes, commands, layers, output } = this.program, usage = GPUBufferUsage;
    const all = usage.STORAGE | usage.COPY_SRC | usage.COPY_DST;
    this.buffers = sizes.map((size) => this.buffer(size, all));
    for (const [buffer, offset, first, last] of this.program.weights) {
      this.device.queue.writeBuffer(this.buffers[buffer], offset, weights, first, last - first);
    }
    this.layouts = new Map();
    const pipelines = new Map(), modules = sources.map((code) => this.device.createShaderModule({ code }));
    this.steps = commands.map((command) => {
      if ("target" in command) return command;
      const layout = this.layout(command.buffers.length);
      if (!pipelines.has(command.source)) {
        const compute = { module: modules[command.source], entryPoint: "main" };
        const whole = this.device.createPipelineLayout({ bindGroupLayouts: [layout] });
        pipelines.set(command.source, this.device.createComputePipeline({ layout: whole, compute }));
      }
      return { ...command, pipeline: pipelines.get(command.source), group: this.bound(command, layout) };
    });
    // The results are copied into one buffer that this program may read.
    this.places = [...layers, output];
    this.starts = [0];
    for (const place of this.places) this.starts.push(this.starts.at(-1) + sizes[place.buffer]);
    this.results = this.buffer(this.starts.at(-1), usage.MAP_READ | usage.COPY_DST);
  }

  // The layout of a kernel with so many buffers: parameters at binding 0, then the buffers.
  layout(count) {
    if (!this.layouts.has(count)) {
      const entries = Array.from({ length: count + 1 }, (_, binding) => ({
        binding,
        visibility: GPUShaderStage.COMPUTE,
        buffer: { type: binding ? "storage" : "read-only-storage" },
      }));
      this.layouts.set(count, this.device.createBindGroupLayout({ entries }));
    }
    return this.layouts.get(count);
  }

  bound(command, layout) {
    const words = new Int32Array(command.parameters);
    const size = Math.ceil(words.byteLength / SLOT) * SLOT;
    const parameters = this.buffer(size, GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST);
    this.device.queue.writeBuffer(parameters, 0, words);
    const bound = [parameters, ...command.buffers.map((number) => this.buffers[number])];
    const entries = bound.map((buffer, binding) => ({ binding, resource: { buffer } }));
    return this.device.createBindGroup({ layout, entries });
  }

  // Returns the probabilities, and for each layer its numbers, for a prepared picture.
  run(picture) {
    this.turn = this.turn.catch(() => {}).then(() => this.compute(picture));  // one after the other
    return this.turn;
  }

  async compute(picture) {
    await this.checked(() => this.submit(picture));
    await this.results.mapAsync(GPUMapMode.READ);
    const words = new Float32Array(this.results.getMappedRange().slice(0));
    this.results.unmap();
    const found = this.places.map((place, i) => compact(words.subarray(this.starts[i] / 4), place));
    return { probabilities: found.at(-1), layers: found.slice(0, -1) };
  }

  submit(picture) {
    const encoder = this.device.createCommandEncoder(), { input, sizes } = this.program;
    this.device.queue.writeBuffer(this.buffers[input.buffer], 4 * input.offset, picture);
    for (const step of this.steps) {
      if ("target" in step) {
        const [from, to] = [this.buffers[step.origin], this.buffers[step.target]];
        encoder.copyBufferToBuffer(from, 0, to, 0, sizes[step.origin]);
      } else {
        const pass = encoder.beginComputePass();
        pass.setPipeline(step.pipeline);
        pass.setBindGroup(0, step.group);
        pass.dispatchWorkgroups(...step.workgroups);
        pass.end();
      }
    }
    this.places.forEach(({ buffer }, i) => encoder.copyBufferToBuffer(
      this.buffers[buffer], 0, this.results, this.starts[i], sizes[buffer]));
    this.device.queue.submit([encoder.finish()]);
  }
}

// Returns the elements of a place in row-major order.
function compact(words, { offset, shape, strides }) {
  let found = [offset];
  shape.forEach((size, axis) => {
    found = found.flatMap((at) => Array.from({ length: size }, (_, i) => at + i * strides[axis]));
  });
  return Float32Array.from(found, (at) => words[at]);
}
