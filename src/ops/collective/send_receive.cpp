#include <cstring>

#include "backend/exchange.h"
#include "ops/collective/collective.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

Inferred infer_send(const NodeView& node) {
  if (node.attrs.integer_or("to", -1) < 0) return refuse("expected the number of a worker in \"to\"");
  return {.out = {{.dtype = DType::u8, .shape = {1}}}, .error = ""};
}

Kernel send_kernel(const NodeView& node) {
  const auto num_bytes = static_cast<size_t>(node.in_type(0).num_bytes());
  const auto to = static_cast<int>(node.attrs.integer("to"));
  return {.run = [num_bytes, to](const KernelArgs& args) {
    *args.output<uint8_t>(0) = 0;
    if (args.exchange != nullptr) args.exchange->send({args.input<std::byte>(0), num_bytes}, to);
  }};
}

Inferred infer_receive(const NodeView& node) {
  if (node.attrs.integer_or("from", -1) < 0) return refuse("expected the number of a worker in \"from\"");
  const std::optional<DType> dtype = dtype_from_name(node.attrs.text_or("dtype", ""));
  if (!dtype) return refuse("expected a known \"dtype\"");
  return {.out = {{.dtype = *dtype, .shape = Shape(node.attrs.list("shape"))}}, .error = ""};
}

Kernel receive_kernel(const NodeView& node) {
  const auto num_bytes = static_cast<size_t>(node.out_type(0).num_bytes());
  const auto from = static_cast<int>(node.attrs.integer("from"));
  return {.run = [num_bytes, from](const KernelArgs& args) {
    if (args.exchange != nullptr) return args.exchange->receive({args.output<std::byte>(0), num_bytes}, from);
    std::memset(args.out[0], 0, num_bytes);
  }};
}

/// Of a worker that is alone: outputs come as zeros.
void reference(const ReferenceArgs& /*args*/) {}

constexpr std::string_view kNoGradient = "a model is cut behind its backward pass";

std::vector<Sample> send_samples() { return {{.in = {normal({7, 11})}, .attrs = {{"to", int64_t{1}}}}}; }
std::vector<Sample> receive_samples() {
  return {{.in = {},
           .attrs = {
               {"from", int64_t{1}}, {"dtype", std::string("f32")}, {"shape", std::vector<int64_t>{7, 11}}}}};
}

}  // namespace

// That they overwrite nothing keeps them where nobody reads what they make, and from being made again.
const OpDef send{.name = "send",
                 .doc = "to another worker of a run",
                 .infer = infer_send,
                 .no_vjp_because = kNoGradient,
                 .cpu = send_kernel,
                 .reference = reference,
                 .writes = {-1},
                 .transfer = ir::Transfer::exchange,
                 .samples = send_samples};

const OpDef receive{.name = "receive",
                    .doc = "what another worker of a run sends",
                    .min_inputs = 0,
                    .max_inputs = 0,
                    .infer = infer_receive,
                    .no_vjp_because = kNoGradient,
                    .cpu = receive_kernel,
                    .reference = reference,
                    .writes = {-1},
                    .transfer = ir::Transfer::exchange,
                    .samples = receive_samples};

}  // namespace hearth::ops
