#include "ops/transfer/transfer.h"

#include <cstring>

#include "base/threads.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

constexpr std::string_view kNoGradient =
    "copies between device and host memory are inserted after the backward pass";

/// Returns a kernel that copies input `from` to output 0.
template <size_t from>
Kernel copy_cpu(const NodeView& node) {
  const int64_t num_bytes = node.in_type(0).num_bytes();
  return {.run = [num_bytes](const KernelArgs& args) {
    args.threads->parallel_for(num_bytes, 1 << 16, [&](Range range) {
      std::memcpy(args.output<char>(0) + range.begin, args.input<char>(from) + range.begin,
                  static_cast<size_t>(range.size()));
    });
  }};
}

Inferred infer_store(const NodeView& node) {
  if (node.in_type(0) != node.in_type(1))
    return refuse_type("the stored value", to_string(node.in_type(1)), node.in_type(0));
  return {.out = {node.in_type(1)}, .error = ""};
}

void copy_reference(const ReferenceArgs& args) { args.out[0] = args.in[0]; }
void load_reference(const ReferenceArgs& args) { args.out[0] = args.in[1]; }

/// Returns the cost of copying each byte once; the input that store and load overwrite is not read.
Cost copy_cost(const NodeView& node) { return {.bytes = static_cast<double>(node.in_type(0).num_bytes())}; }

std::vector<Sample> copies() {
  return {
      {.in = {normal({5, 7})}}, {.in = {normal({300}, DType::bf16)}}, {.in = {indices({9}, 256, DType::u8)}}};
}

std::vector<Sample> stores() {
  return {{.in = {normal({5, 7}), normal({5, 7})}},
          {.in = {normal({33}, DType::f16), normal({33}, DType::f16)}}};
}

}  // namespace

const OpDef fetch{.name = "fetch",
                  .doc = "copies a value from host memory to the device",
                  .inputs = {"x"},
                  .infer = same_as_first,
                  .no_vjp_because = kNoGradient,
                  .cpu = copy_cpu<0>,
                  .gpu = true,
                  .reference = copy_reference,
                  .cost = copy_cost,
                  .transfer = ir::Transfer::fetch,
                  .samples = copies};

const OpDef store{.name = "store",
                  .doc = "overwrites a weight or state in host memory with x",
                  .inputs = {"x", "home"},
                  .infer = infer_store,
                  .no_vjp_because = kNoGradient,
                  .cpu = copy_cpu<0>,
                  .gpu = true,
                  .reference = copy_reference,
                  .cost = copy_cost,
                  .writes = {1},
                  .transfer = ir::Transfer::store,
                  .samples = stores};

const OpDef stash{.name = "stash",
                  .doc = "copies a value from the device to host memory",
                  .inputs = {"x"},
                  .infer = same_as_first,
                  .no_vjp_because = kNoGradient,
                  .cpu = copy_cpu<0>,
                  .gpu = true,
                  .reference = copy_reference,
                  .cost = copy_cost,
                  .transfer = ir::Transfer::stash,
                  .samples = copies};

const OpDef load{.name = "load",
                 .doc = "overwrites a weight or state on the device with x, which is in host memory",
                 .inputs = {"home", "x"},
                 .infer = infer_store,
                 .no_vjp_because = kNoGradient,
                 .cpu = copy_cpu<1>,
                 .gpu = true,
                 .reference = load_reference,
                 .cost = copy_cost,
                 .writes = {0},
                 .transfer = ir::Transfer::fetch,
                 .samples = stores};

}  // namespace hearth::ops
