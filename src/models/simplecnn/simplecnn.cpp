#include "models/model.h"

namespace hearth::models {

Outputs build_simplecnn(nn::Builder& builder, ir::ValueId images, const ModelOptions& options) {
  ir::ValueId x = builder.relu(builder.conv("conv1", images, {.out_channels = 16, .bias = true}));
  x = builder.max_pool(x, 2, 2);
  return {builder.linear("fc", builder.flatten(x), options.num_classes)};
}

Outputs build_smallcnn(nn::Builder& builder, ir::ValueId images, const ModelOptions& options) {
  ir::ValueId x = images;
  const int64_t widths[] = {32, 32, 64, 64};
  for (int i = 0; i < 4; ++i) {
    const std::string index = std::to_string(i + 1);
    x = builder.conv("conv" + index, x, {.out_channels = widths[i]});
    x = builder.relu(builder.batch_norm("bn" + index, x));
    if (i % 2 == 1) x = builder.max_pool(x, 2, 2);
  }
  return {builder.linear("fc", builder.global_avg_pool(x), options.num_classes)};
}

}  // namespace hearth::models
