#include <cstring>

#include "distributed/process_group.h"
#include "ops/collective/collective.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

constexpr std::string_view kNoGradient = "collectives are inserted after the backward pass";

const Type kNothing{.dtype = DType::u8, .shape = {1}};

Inferred infer_send(const NodeView& node) {
  if (node.attrs.integer_or("to", -1) < 0) return refuse("expected a rank in attribute \"to\"");
  return {.out = {kNothing}, .error = ""};
}

Kernel send_kernel(const NodeView& node) {
  const auto num_bytes = static_cast<size_t>(node.in_type(0).num_bytes());
  const auto to = static_cast<int>(node.attrs.integer("to"));
  return {.run = [num_bytes, to](const KernelArgs& args) {
    *args.output<uint8_t>(0) = 0;
    if (args.group == nullptr) return;
    args.group->in_step([&] { args.group->send({args.input<std::byte>(0), num_bytes}, to); });
  }};
}

Inferred infer_send_broadcast(const NodeView& /*node*/) { return {.out = {kNothing}, .error = ""}; }

Kernel send_broadcast_kernel(const NodeView& node) {
  const auto num_bytes = static_cast<size_t>(node.in_type(0).num_bytes());
  const auto root = static_cast<int>(node.attrs.integer("root"));
  return {.run = [num_bytes, root](const KernelArgs& args) {
    *args.output<uint8_t>(0) = 0;
    if (args.group == nullptr) return;
    args.group->in_step([&] {
      args.group->broadcast({static_cast<std::byte*>(args.in[0]), num_bytes}, root);
    });
  }};
}

/// Infers the type of a received value from the attributes "shape" and "dtype".
Inferred infer_received(const NodeView& node) {
  const std::optional<DType> dtype = dtype_from_name(node.attrs.text_or("dtype", "f32"));
  if (!dtype) return refuse("unknown dtype in attribute \"dtype\"");
  return {.out = {{.dtype = *dtype, .shape = Shape(node.attrs.list("shape"))}}, .error = ""};
}

Inferred infer_receive(const NodeView& node) {
  if (node.attrs.integer_or("from", -1) < 0) return refuse("expected a rank in attribute \"from\"");
  return infer_received(node);
}

Kernel receive_kernel(const NodeView& node) {
  const auto num_bytes = static_cast<size_t>(node.out_type(0).num_bytes());
  const auto from = static_cast<int>(node.attrs.integer("from"));
  return {.run = [num_bytes, from](const KernelArgs& args) {
    if (args.group == nullptr) {
      std::memset(args.out[0], 0, num_bytes);
    } else {
      args.group->in_step([&] { args.group->receive({args.output<std::byte>(0), num_bytes}, from); });
    }
  }};
}

Kernel receive_broadcast_kernel(const NodeView& node) {
  const auto num_bytes = static_cast<size_t>(node.out_type(0).num_bytes());
  const auto root = static_cast<int>(node.attrs.integer("root"));
  return {.run = [num_bytes, root](const KernelArgs& args) {
    if (args.group == nullptr) {
      std::memset(args.out[0], 0, num_bytes);
    } else {
      args.group->in_step([&] { args.group->broadcast({args.output<std::byte>(0), num_bytes}, root); });
    }
  }};
}

/// Reference for a single worker, in which outputs are zeros.
void reference(const ReferenceArgs& /*args*/) {}

std::vector<Sample> send_samples() { return {{.in = {normal({7, 11})}, .attrs = {{"to", int64_t{1}}}}}; }
std::vector<Sample> receive_samples() {
  return {{.in = {},
           .attrs = {
               {"from", int64_t{1}}, {"dtype", std::string("f32")}, {"shape", std::vector<int64_t>{7, 11}}}}};
}

std::vector<Sample> send_broadcast_samples() {
  return {{.in = {normal({7, 11})}, .attrs = {{"root", int64_t{1}}}}};
}
std::vector<Sample> receive_broadcast_samples() {
  return {{.attrs = {{"root", int64_t{1}}, {"shape", std::vector<int64_t>{3, 5}}}},
          {.attrs = {
               {"root", int64_t{1}}, {"dtype", std::string("bf16")}, {"shape", std::vector<int64_t>{3, 5}}}}};
}

}  // namespace

// The -1 in `writes` marks a side effect without an overwritten input: graph passes neither remove such a
// node as dead code nor recompute it.
const OpDef send{.name = "send",
                 .doc = "sends x to rank `to`",
                 .inputs = {"x"},
                 .infer = infer_send,
                 .no_vjp_because = kNoGradient,
                 .cpu = send_kernel,
                 .reference = reference,
                 .writes = {-1},
                 .transfer = ir::Transfer::exchange,
                 .samples = send_samples};

const OpDef receive{.name = "receive",
                    .doc = "the value sent by rank `from`",
                    .inputs = {},
                    .infer = infer_receive,
                    .no_vjp_because = kNoGradient,
                    .cpu = receive_kernel,
                    .reference = reference,
                    .writes = {-1},
                    .transfer = ir::Transfer::exchange,
                    .samples = receive_samples};

const OpDef send_broadcast{.name = "send_broadcast",
                           .doc = "sends x to all other ranks",
                           .inputs = {"x"},
                           .infer = infer_send_broadcast,
                           .no_vjp_because = kNoGradient,
                           .cpu = send_broadcast_kernel,
                           .reference = reference,
                           .writes = {-1},
                           .transfer = ir::Transfer::exchange,
                           .samples = send_broadcast_samples};

const OpDef receive_broadcast{.name = "receive_broadcast",
                              .doc = "the value that rank `root` sends to all",
                              .inputs = {},
                              .infer = infer_received,
                              .no_vjp_because = kNoGradient,
                              .cpu = receive_broadcast_kernel,
                              .reference = reference,
                              .writes = {-1},
                              .transfer = ir::Transfer::exchange,
                              .samples = receive_broadcast_samples};

}  // namespace hearth::ops
