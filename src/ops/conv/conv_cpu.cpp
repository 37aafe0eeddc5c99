#include "ops/conv/conv_cpu.h"

#include "ops/conv/direct_cpu.h"
#include "ops/conv/winograd_cpu.h"

namespace hearth::cpu {
namespace {

WinogradForward forward_plan(const ConvSpec& spec) {
  const ConvShape& s = spec.shape;
  return {.batch = s.batch,
          .in_h = s.in_h,
          .in_w = s.in_w,
          .in_c = s.in_c,
          .out_h = s.out_h(),
          .out_w = s.out_w(),
          .out_c = s.out_c,
          .dilation = s.dilation,
          .padding = s.padding / s.dilation,
          .x = spec.x,
          .w = spec.w,
          .adjoint = false,
          .relu = spec.relu,
          .num_threads = spec.num_threads};
}

WinogradForward data_plan(const ConvSpec& spec) {
  const ConvShape& s = spec.shape;
  return {.batch = s.batch,
          .in_h = s.out_h(),
          .in_w = s.out_w(),
          .in_c = s.out_c,
          .out_h = s.in_h,
          .out_w = s.in_w,
          .out_c = s.in_c,
          .dilation = s.dilation,
          .padding = 2 - s.padding / s.dilation,
          .x = spec.x,
          .w = spec.w,
          .adjoint = true,
          .relu = false,
          .num_threads = spec.num_threads};
}

WinogradBackwardWeights weights_plan(const ConvSpec& spec) { return {spec.shape, spec.x, spec.num_threads}; }

std::optional<DepthwiseConv> depthwise_of(const ConvSpec& spec) {
  return spec.shape.is_depthwise() ? std::optional<DepthwiseConv>(spec) : std::nullopt;
}

bool winograd(const ConvSpec& spec) { return spec.algorithm == ConvAlgorithm::winograd; }

}  // namespace

ConvAlgorithm choose_algorithm(const ConvShape& s, bool winograd_allowed) {
  const bool fits = s.kernel_h == 3 && s.kernel_w == 3 && s.stride == 1 && s.groups == 1 &&
                    s.padding % s.dilation == 0 && s.padding / s.dilation <= 2;
  // A dilated convolution is split into one per subsampled image (winograd_tiles.h); on small images too many
  // tile elements would be outside of the image.
  const auto whole = [&](int64_t length) {
    const int64_t side = 4 * s.dilation;
    return (length + side - 1) / side * side;
  };
  const bool fills = s.dilation == 1 || whole(s.out_h()) * whole(s.out_w()) <= 3 * s.out_h() * s.out_w();
  const bool pays = s.in_c >= 16 && s.out_c >= 16 && s.out_h() >= 4 && s.out_w() >= 4 && fills;
  return fits && pays && winograd_allowed ? ConvAlgorithm::winograd : ConvAlgorithm::direct;
}

ConvForward::ConvForward(const ConvSpec& spec) : spec_(spec), depthwise_(depthwise_of(spec)) {}
int64_t ConvForward::workspace_bytes() const {
  if (depthwise_) return depthwise_->forward_workspace_bytes();
  return winograd(spec_) ? forward_plan(spec_).workspace_bytes()
                         : DirectConv{spec_}.forward_workspace_bytes();
}
void ConvForward::run(const void* x, const void* w, const float* bias, const void* residual, void* y,
                      std::byte* workspace, ThreadPool& threads) const {
  if (depthwise_) return depthwise_->forward(x, w, bias, residual, y, workspace, threads);
  if (winograd(spec_)) return forward_plan(spec_).run(x, w, bias, residual, y, workspace, threads);
  DirectConv{spec_}.forward(x, w, bias, residual, y, workspace, threads);
}

ConvBackwardData::ConvBackwardData(const ConvSpec& spec) : spec_(spec), depthwise_(depthwise_of(spec)) {}
int64_t ConvBackwardData::workspace_bytes() const {
  if (depthwise_) return depthwise_->data_workspace_bytes();
  return winograd(spec_) ? data_plan(spec_).workspace_bytes() : DirectConv{spec_}.data_workspace_bytes();
}
void ConvBackwardData::run(const void* dy, const void* w, void* dx, std::byte* workspace,
                           ThreadPool& threads) const {
  if (depthwise_) return depthwise_->backward_data(dy, w, dx, workspace, threads);
  if (winograd(spec_)) return data_plan(spec_).run(dy, w, nullptr, nullptr, dx, workspace, threads);
  DirectConv{spec_}.backward_data(dy, w, dx, workspace, threads);
}

ConvBackwardWeights::ConvBackwardWeights(const ConvSpec& spec)
    : spec_(spec), depthwise_(depthwise_of(spec)) {}
int64_t ConvBackwardWeights::workspace_bytes() const {
  if (depthwise_) return depthwise_->weights_workspace_bytes();
  return winograd(spec_) ? weights_plan(spec_).workspace_bytes()
                         : DirectConv{spec_}.weights_workspace_bytes();
}
void ConvBackwardWeights::run(const void* x, const void* dy, float* dw, std::byte* workspace,
                              ThreadPool& threads) const {
  if (depthwise_) return depthwise_->backward_weights(x, dy, dw, workspace, threads);
  if (winograd(spec_)) return weights_plan(spec_).run(x, dy, dw, workspace, threads);
  DirectConv{spec_}.backward_weights(x, dy, dw, workspace, threads);
}

}  // namespace hearth::cpu
