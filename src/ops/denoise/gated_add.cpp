#include "backend/cpu/clones.h"
#include "ops/denoise/denoise.h"
#include "ops/denoise/sample_rows.h"
#include "ops/row_kernel.h"

namespace hearth::ops {
namespace {

enum In : size_t { kX, kGate, kBranch };
enum GradIn : size_t { kGradBranch, kGradGate, kDy };

/// Returns the shape of a gated_add or gated_add_grad node.
SampleRows rows_of(const NodeView& node) { return {node.in_type(0), node.in_type(1)}; }

HEARTH_CLONES void add_row(const float* x, const float* gate, const float* branch, float* y, int64_t count) {
// Ignores possible aliasing in vectorization: y may be x, but elements are independent.
#ifndef __clang__
#pragma GCC ivdep
#endif
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] + gate[i] * branch[i];
}
HEARTH_CLONES void spread_row(const float* branch, const float* gate, const float* dy, float* dbranch,
                              float* dgate, int64_t count) {
// Ignores possible aliasing in vectorization: dbranch may be branch, but elements are independent.
#ifndef __clang__
#pragma GCC ivdep
#endif
  for (int64_t i = 0; i < count; ++i) {
    dgate[i] += dy[i] * branch[i];
    dbranch[i] = dy[i] * gate[i];
  }
}

/// Returns an error message unless inputs 0 and 2 of either op have the same type and input 1 is a modulation
/// (gate) of that type; empty if valid.
std::string fault(const NodeView& node) {
  if (auto error = modulation_fault(node, 1); !error.empty()) return error;
  if (node.in_type(2) == node.in_type(0)) return "";
  return fmt::format("expected inputs 0 and 2 to have one type, got {} and {}", to_string(node.in_type(0)),
                     to_string(node.in_type(2)));
}
Inferred infer(const NodeView& node) {
  if (auto error = fault(node); !error.empty()) return refuse(error);
  return same_as_first(node);
}
Inferred infer_grad(const NodeView& node) {
  if (auto error = fault(node); !error.empty()) return refuse(error);
  return {.out = {node.in_type(kGradBranch), node.in_type(kGradGate)}, .error = ""};
}

Kernel kernel(const NodeView& node) {
  const SampleRows rows = rows_of(node);
  const int64_t width = rows.width;
  const auto row = [=](const KernelArgs& args, int64_t r, float* scratch) {
    const float* x = rows.read(args.in[kX], r, scratch, 0);
    const float* gate = rows.read(args.in[kGate], r / rows.time, scratch, 1);
    const float* branch = rows.read(args.in[kBranch], r, scratch, 2);
    float* y = rows.to_write(args.out[0], r, scratch, 0);
    add_row(x, gate, branch, y, width);
    rows.store(y, args.out[0], r);
  };
  return row_kernel(rows.batch * rows.time, node.num_threads, rows.scratch_floats(3), row);
}

void grad_part(const SampleRows& rows, const KernelArgs& args, int64_t part, float* dgate, float* scratch) {
  const int64_t width = rows.width;
  std::fill_n(dgate, width, 0.0F);
  const float* gate = rows.read(args.in[kGradGate], part / rows.parts_of_sample(), scratch, 0);
  const Range local = rows.rows_of_part(part);
  for (int64_t r = local.begin; r < local.end; ++r) {
    const float* branch = rows.read(args.in[kGradBranch], r, scratch, 1);
    const float* dy = rows.read(args.in[kDy], r, scratch, 2);
    float* dbranch = rows.to_write(args.out[0], r, scratch, 1);
    spread_row(branch, gate, dy, dbranch, dgate, width);
    rows.store(dbranch, args.out[0], r);
  }
}

Kernel grad_kernel(const NodeView& node) {
  const SampleRows rows = rows_of(node);
  const int64_t parts = rows.num_parts(), width = rows.width;
  const int64_t of_thread = rows.scratch_floats(3);
  const auto run = [=, num_threads = node.num_threads](const KernelArgs& args) {
    auto* sums = reinterpret_cast<float*>(args.workspace);
    float* scratch = sums + parts * width;
    args.threads->run_tasks(parts, num_threads, [&](int64_t part, int thread) {
      grad_part(rows, args, part, sums + part * width, scratch + thread * of_thread);
    });
    rows.add_parts(sums, width, args.out[1], *args.threads);
  };
  return {.run = run,
          .workspace_bytes = (parts * width + node.num_threads * of_thread) * int64_t{sizeof(float)}};
}

void reference(const ReferenceArgs& args) {
  const SampleRows rows = rows_of(args.node);
  const auto width = static_cast<size_t>(rows.width), size = static_cast<size_t>(rows.time) * width;
  for (size_t i = 0; i < args.out[0].size(); ++i)
    args.out[0][i] = args.in[kX][i] + args.in[kGate][i / size * width + i % width] * args.in[kBranch][i];
}
void grad_reference(const ReferenceArgs& args) {
  const SampleRows rows = rows_of(args.node);
  const auto width = static_cast<size_t>(rows.width), size = static_cast<size_t>(rows.time) * width;
  std::ranges::fill(args.out[1], 0.0);
  for (size_t i = 0; i < args.out[0].size(); ++i) {
    const size_t gate = i / size * width + i % width;
    args.out[0][i] = args.in[kDy][i] * args.in[kGradGate][gate];
    args.out[1][gate] += args.in[kDy][i] * args.in[kGradBranch][i];
  }
}

std::vector<ValueId> vjp(const VjpContext& context) {
  const ir::Node node = context.node;
  const auto result = context.graph.add(
      gated_add_grad, {node.inputs[kBranch], node.inputs[kGate], context.grad_out[0]}, {}, node.name);
  return {context.grad_out[0], result[1], result[0]};
}

std::vector<Sample> samples() {
  const auto sample = [](int64_t batch, int64_t time, int64_t width, DType dtype) {
    const SampleInput rows = normal({batch * time, width}, dtype);
    return Sample{.in = {rows, normal({batch, width}, dtype), rows}};
  };
  return {sample(2, 3, 7, DType::f32),     sample(1, 200, 37, DType::f32), sample(3, 1, 1031, DType::f32),
          sample(2, 5, 9, DType::bf16),    sample(2, 70, 40, DType::bf16), sample(1, 2, 33, DType::f16),
          sample(2, 2, 2056, DType::bf16), sample(2, 5, 64, DType::f32)};
}

}  // namespace

const OpDef gated_add{.name = "gated_add",
                      .doc =
                          "gated_add(x [N, D], gate [B, D], branch [N, D]): x + gate * branch with the gate "
                          "of the row's sample",
                      .inputs = {"x", "gate", "branch"},
                      .infer = infer,
                      .vjp = vjp,
                      .cpu = kernel,
                      .gpu = true,
                      .reference = reference,
                      .cost = [](const NodeView& node) { return stream_cost(node, 2); },
                      .num_following = 3,
                      .may_work_in_place = true,
                      .samples = samples};

const OpDef gated_add_grad{.name = "gated_add_grad",
                           .doc = "gated_add_grad(branch, gate, dy): dbranch, dgate",
                           .inputs = {"branch", "gate", "dy"},
                           .infer = infer_grad,
                           .no_vjp_because = kNoSecondDerivatives,
                           .cpu = grad_kernel,
                           .gpu = true,
                           .reference = grad_reference,
                           .cost = [](const NodeView& node) { return stream_cost(node, 3); },
                           .may_work_in_place = true,
                           .samples = samples};

}  // namespace hearth::ops
