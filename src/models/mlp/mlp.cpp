#include "models/model.h"

namespace hearth::models {

Outputs build_mlp(nn::Builder& builder, ir::ValueId images, const ModelOptions& options) {
  ir::ValueId x = builder.flatten(images);
  for (size_t i = 0; i < options.hidden.size(); ++i) {
    const std::string index = std::to_string(i + 1);
    x = builder.linear("fc" + index, x, options.hidden[i]);
    x = builder.relu(builder.batch_norm("bn" + index, x));
    x = builder.dropout("dropout" + index, x, options.dropout);
  }
  return {builder.linear("fc" + std::to_string(options.hidden.size() + 1), x, options.num_classes)};
}

}  // namespace hearth::models
