#include "models/mobilenet/inverted_residual.h"

#include <algorithm>
#include <string>

#include "models/model.h"

namespace hearth::models {
namespace {

using ir::ValueId;
using nn::Builder;

/// Adds squeeze-and-excitation: scales the channels of each image by factors that are computed from the
/// channels' means.
ValueId squeeze_excite(Builder& builder, const std::string& name, ValueId in, const InvertedResidual& block) {
  const Builder::Scope scope(builder, name);
  const Shape shape = builder.graph().type(in).shape;
  const auto pointwise = [&](const char* part, ValueId x, int64_t channels) {
    return builder.conv(part, x,
                        {.out_channels = channels,
                         .kernel = 1,
                         .padding = 0,
                         .bias = true,
                         .kaiming_fan_out = true,
                         .bias_init = 0});
  };
  const ValueId mean = builder.op("reshape", {builder.global_avg_pool(in)},
                                  {{"shape", std::vector<int64_t>{shape[0], 1, 1, shape[3]}}});
  const ValueId few = builder.op(block.squeeze_activation, {pointwise("fc1", mean, block.squeezed)});
  const ValueId factors = builder.op(block.gate, {pointwise("fc2", few, shape[3])});
  return builder.op("scale_channels", {in, builder.flatten(factors)});
}

}  // namespace

int64_t round_channels(double channels) {
  const int64_t nearest = std::max<int64_t>(8, static_cast<int64_t>(channels + 4) / 8 * 8);
  return static_cast<double>(nearest) < 0.9 * channels ? nearest + 8 : nearest;
}

ValueId ConvNorm::operator()(Builder& builder, std::string_view name, ValueId in, Builder::Conv conv) const {
  const Builder::Scope scope(builder, name);
  conv.padding = (conv.kernel - 1) / 2;
  conv.kaiming_fan_out = true;
  const ValueId x = builder.batch_norm("1", builder.conv("0", in, conv), norm);
  return activation.empty() ? x : builder.op(activation, {x});
}

ValueId InvertedResidual::operator()(Builder& builder, ValueId in) const {
  const Builder::Scope scope(builder, "block");
  const ConvNorm active{.activation = activation, .norm = norm}, linear{.activation = "", .norm = norm};
  int part = 0;
  const auto next = [&] { return std::to_string(part++); };
  ValueId x = in;
  if (wide != builder.graph().type(in).shape.back())
    x = active(builder, next(), x, {.out_channels = wide, .kernel = 1});
  x = active(builder, next(), x, {.out_channels = wide, .kernel = kernel, .stride = stride, .groups = wide});
  if (squeezed > 0) x = squeeze_excite(builder, next(), x, *this);
  x = linear(builder, next(), x, {.out_channels = out, .kernel = 1});
  return adds_input ? builder.add(x, in) : x;
}

Strides::Strides(Builder& builder, ValueId images) {
  left_out_ = are_small(builder.graph().type(images).shape) ? 2 : 0;
}

int64_t Strides::next(int64_t stride) {
  if (stride == 1 || left_out_ == 0) return stride;
  --left_out_;
  return 1;
}

}  // namespace hearth::models
