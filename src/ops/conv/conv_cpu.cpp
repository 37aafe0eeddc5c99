#include "ops/conv/conv_cpu.h"

#include <atomic>

#include "ops/conv/direct_cpu.h"
#include "ops/conv/winograd_cpu.h"

namespace hearth::cpu {
namespace {

std::atomic<bool> winograd_allowed{true};

WinogradForward forward_plan(const ConvSpec& spec) {
  const ConvShape& s = spec.shape;
  return {s.batch,   s.in_h, s.in_w, s.in_c, s.out_h(), s.out_w(),       s.out_c,
          s.padding, spec.x, spec.w, false,  spec.relu, spec.num_threads};
}

WinogradForward data_plan(const ConvSpec& spec) {
  const ConvShape& s = spec.shape;
  return {s.batch,       s.out_h(), s.out_w(), s.out_c, s.in_h, s.in_w,          s.in_c,
          2 - s.padding, spec.x,    spec.w,    true,    false,  spec.num_threads};
}

WinogradBackwardWeights weights_plan(const ConvSpec& spec) { return {spec.shape, spec.x, spec.num_threads}; }

bool winograd(const ConvSpec& spec) { return spec.algorithm == ConvAlgorithm::winograd; }

}  // namespace

void allow_winograd(bool allowed) { winograd_allowed = allowed; }

ConvAlgorithm choose_algorithm(const ConvShape& s) {
  const bool fits = s.kernel_h == 3 && s.kernel_w == 3 && s.stride == 1 && s.padding <= 2;
  const bool pays = s.in_c >= 16 && s.out_c >= 16 && s.out_h() >= 4 && s.out_w() >= 4;
  return fits && pays && winograd_allowed ? ConvAlgorithm::winograd : ConvAlgorithm::direct;
}

ConvForward::ConvForward(const ConvSpec& spec) : spec_(spec) {}
int64_t ConvForward::workspace_bytes() const {
  return winograd(spec_) ? forward_plan(spec_).workspace_bytes()
                         : DirectConv{spec_}.forward_workspace_bytes();
}
void ConvForward::run(const void* x, const void* w, const float* bias, const void* residual, void* y,
                      std::byte* workspace, ThreadPool& threads) const {
  if (winograd(spec_)) return forward_plan(spec_).run(x, w, bias, residual, y, workspace, threads);
  DirectConv{spec_}.forward(x, w, bias, residual, y, workspace, threads);
}

ConvBackwardData::ConvBackwardData(const ConvSpec& spec) : spec_(spec) {}
int64_t ConvBackwardData::workspace_bytes() const {
  return winograd(spec_) ? data_plan(spec_).workspace_bytes() : DirectConv{spec_}.data_workspace_bytes();
}
void ConvBackwardData::run(const void* dy, const void* w, void* dx, std::byte* workspace,
                           ThreadPool& threads) const {
  if (winograd(spec_)) return data_plan(spec_).run(dy, w, nullptr, nullptr, dx, workspace, threads);
  DirectConv{spec_}.backward_data(dy, w, dx, workspace, threads);
}

ConvBackwardWeights::ConvBackwardWeights(const ConvSpec& spec) : spec_(spec) {}
int64_t ConvBackwardWeights::workspace_bytes() const {
  return winograd(spec_) ? weights_plan(spec_).workspace_bytes()
                         : DirectConv{spec_}.weights_workspace_bytes();
}
void ConvBackwardWeights::run(const void* x, const void* dy, float* dw, std::byte* workspace,
                              ThreadPool& threads) const {
  if (winograd(spec_)) return weights_plan(spec_).run(x, dy, dw, workspace, threads);
  DirectConv{spec_}.backward_weights(x, dy, dw, workspace, threads);
}

}  // namespace hearth::cpu
