#include "ops/update/scalars.h"

#include "ops/update/support.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

Inferred infer_two_scalars(const NodeView& node, const OpDef& op) {
  if (auto error = check_scalars(node, op, 0, 1); !error.empty()) return refuse(error);
  return {.out = {kScalar}, .error = ""};
}

std::string check_state(const NodeView& node, const OpDef& op) {
  if (auto error = check_scalars(node, op, 1, 1); !error.empty()) return error;
  if (node.in_type(0) != f32_type({3}))
    return fmt::format("expected the loss scale's state to be f32[3], got {}", to_string(node.in_type(0)));
  return "";
}

Inferred infer_state(const NodeView& node) {
  if (auto error = check_state(node, loss_scale_update); !error.empty()) return refuse(error);
  return {.out = {node.in_type(0)}, .error = ""};
}

Inferred infer_read(const NodeView& node) {
  if (auto error = check_state(node, loss_scale_read); !error.empty()) return refuse(error);
  return {.out = {kScalar}, .error = ""};
}

Kernel increment_cpu(const NodeView&) {
  return {.run =
              [](const KernelArgs& args) {
                *args.output<float>(0) = next_count(*args.input<float>(0), *args.input<float>(1));
              },
          .workspace_bytes = 0};
}
void increment_reference(const ReferenceArgs& args) {
  args.out[0][0] = next_count(args.in[0][0], args.in[1][0]);
}

Kernel clip_cpu(const NodeView& node) {
  const double max_norm = node.attrs.real_or("max_norm", 0);
  return {.run =
              [max_norm](const KernelArgs& args) {
                *args.output<float>(0) =
                    gradient_factor(*args.input<float>(0), *args.input<float>(1), max_norm);
              },
          .workspace_bytes = 0};
}
void clip_reference(const ReferenceArgs& args) {
  args.out[0][0] = gradient_factor(args.in[0][0], args.in[1][0], args.node.attrs.real_or("max_norm", 0));
}

Kernel loss_scale_cpu(const NodeView& node) {
  const LossScale rule = loss_scale_of(node.attrs);
  return {.run =
              [rule](const KernelArgs& args) {
                next_loss_scale(rule, *args.input<float>(1), args.input<float>(0), args.output<float>(0));
              },
          .workspace_bytes = 0};
}
void loss_scale_reference(const ReferenceArgs& args) {
  next_loss_scale(loss_scale_of(args.node.attrs), args.in[1][0], args.in[0].data(), args.out[0].data());
}

Kernel read_cpu(const NodeView& node) {
  const bool inverse = node.attrs.integer("inverse") != 0;
  return {.run =
              [inverse](const KernelArgs& args) {
                *args.output<float>(0) =
                    read_loss_scale(*args.input<float>(0), *args.input<float>(1), inverse);
              },
          .workspace_bytes = 0};
}
void read_reference(const ReferenceArgs& args) {
  args.out[0][0] = read_loss_scale(args.in[0][0], args.in[1][0], args.node.attrs.integer("inverse") != 0);
}

std::vector<Sample> increment_samples() {
  return {{.in = {positive({}), one()}, .attrs = {}}, {.in = {positive({}), normal({})}, .attrs = {}}};
}
std::vector<Sample> clip_samples() {
  return {{.in = {positive({}), positive({})}, .attrs = {{"max_norm", 0.0}}},
          {.in = {positive({}), positive({})}, .attrs = {{"max_norm", 0.01}}},
          {.in = {positive({}), one()}, .attrs = {{"max_norm", 1000.0}}}};
}
std::vector<Sample> loss_scale_samples() {
  return {{.in = {positive({3}), one()}, .attrs = {}},
          {.in = {positive({3}), one()}, .attrs = {{"growth_interval", int64_t{1}}}},
          {.in = {positive({3}), normal({})}, .attrs = {}}};
}
std::vector<Sample> read_samples() {
  return {{.in = {positive({3}), positive({})}, .attrs = {{"inverse", int64_t{0}}}},
          {.in = {positive({3}), positive({})}, .attrs = {{"inverse", int64_t{1}}}}};
}

}  // namespace

LossScale loss_scale_of(const Attrs& attrs) {
  return {.interval = static_cast<double>(attrs.integer_or("growth_interval", 2000)),
          .growth = attrs.real_or("growth", 2),
          .backoff = attrs.real_or("backoff", 0.5)};
}

const OpDef increment{.name = "increment",
                      .doc = "increment(count, factor): count' = count + 1, in place",
                      .inputs = {"count", "factor"},
                      .infer = [](const NodeView& node) { return infer_two_scalars(node, increment); },
                      .no_vjp_because = kUpdateHasNoGradient,
                      .cpu = increment_cpu,
                      .gpu = true,
                      .reference = increment_reference,
                      .writes = {0},
                      .samples = increment_samples};

const OpDef clip_factor{
    .name = "clip_factor",
    .doc =
        "clip_factor(sum_squares, inverse_scale): inverse_scale min(1, max_norm / (norm + 1e-6)) with norm = "
        "sqrt(sum_squares) inverse_scale; -1 if sum_squares is not finite; max_norm 0: no clipping",
    .inputs = {"sum_squares", "inverse_scale"},
    .infer = [](const NodeView& node) { return infer_two_scalars(node, clip_factor); },
    .no_vjp_because = kUpdateHasNoGradient,
    .cpu = clip_cpu,
    .gpu = true,
    .reference = clip_reference,
    .samples = clip_samples};

const OpDef loss_scale_update{
    .name = "loss_scale_update",
    .doc =
        "loss_scale_update(state {scale, good steps, skips}, factor): backs off after a skipped step, grows "
        "after growth_interval good ones (torch.amp.GradScaler), in place",
    .inputs = {"state", "factor"},
    .infer = infer_state,
    .no_vjp_because = kUpdateHasNoGradient,
    .cpu = loss_scale_cpu,
    .gpu = true,
    .reference = loss_scale_reference,
    .writes = {0},
    .samples = loss_scale_samples};

const OpDef loss_scale_read{
    .name = "loss_scale_read",
    .doc = "loss_scale_read(state, s): s * scale, or 1 / scale when `inverse` is 1 (s is then ignored)",
    .inputs = {"state", "value"},
    .infer = infer_read,
    .no_vjp_because = kUpdateHasNoGradient,
    .cpu = read_cpu,
    .gpu = true,
    .reference = read_reference,
    .samples = read_samples};

}  // namespace hearth::ops
