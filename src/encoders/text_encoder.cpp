#include "encoders/text_encoder.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "hub/weights.h"

namespace hearth::encoders {

using ir::ValueId;

struct TextEncoder::States {
  std::vector<float> hidden;  ///< [length, width], followed by engine::kInputSlack bytes
  std::vector<float> kept;    ///< [length, width()] if several layers are kept; otherwise empty
};

int64_t num_ids(const text::Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, text::SpecialTokens::parsed, ids);
  return std::ssize(ids) + std::ssize(tokenizer.special().prefix) + std::ssize(tokenizer.special().suffix);
}

TextIds padded_ids(const text::Tokenizer& tokenizer, std::string_view text, int64_t length, int32_t pad) {
  const text::SpecialIds& special = tokenizer.special();
  const auto around = special.prefix.size() + special.suffix.size(), max_ids = static_cast<size_t>(length);
  HEARTH_CHECK(around <= max_ids);
  TextIds made{.ids = special.prefix};
  tokenizer.encode(text, text::SpecialTokens::parsed, made.ids);
  made.ids.resize(std::min(made.ids.size(), max_ids - special.suffix.size()));
  made.ids.insert(made.ids.end(), special.suffix.begin(), special.suffix.end());
  made.num_tokens = std::ssize(made.ids);
  made.ids.resize(max_ids, pad);
  return made;
}

TextEncoder::TextEncoder(Structure parts, const io::WeightFiles& files, const Compute& compute)
    : structure_(std::move(parts)),
      files_(files),
      positions_(static_cast<size_t>(structure_.length + engine::kInputSlack)),
      layer_([this](nn::Builder& builder) { return grow_layer(builder); }, compute) {
  std::iota(positions_.begin(), positions_.end(), 0);
  if (structure_.grow_norm)
    norm_.emplace([this](nn::Builder& builder) { return grow_norm(builder); }, compute);
}

ModelPart::Graph TextEncoder::grow_layer(nn::Builder& builder) const {
  const auto input = [&](const char* name, DType dtype, const Shape& shape) {
    return builder.input(name, {.dtype = dtype, .shape = shape});
  };
  Inputs in{.hidden = input("hidden", DType::f32, {structure_.length, structure_.width}),
            .positions = input("positions", DType::i32, {structure_.length})};
  ModelPart::Graph made{.inputs = {in.hidden, in.positions}};
  if (structure_.heads > 0) {
    in.bias = input("bias", DType::f32, {structure_.heads, structure_.length, structure_.length});
    made.inputs.push_back(in.bias);
  }
  made.outputs = {structure_.grow_layer(builder, in)};
  return made;
}

ModelPart::Graph TextEncoder::grow_norm(nn::Builder& builder) const {
  const ValueId hidden =
      builder.input("hidden", {.dtype = DType::f32, .shape = {structure_.length, structure_.width}});
  return {.inputs = {hidden}, .outputs = {structure_.grow_norm(builder, hidden)}};
}

void TextEncoder::add_rows(const std::string& table, std::span<const int32_t> rows,
                           std::span<float> to) const {
  const io::TensorView* found = files_.find(table);
  const bool fits = found != nullptr && found->shape.rank() == 2 && found->shape[1] == structure_.width &&
                    is_floating(found->dtype) && dtype_bytes(found->dtype) >= 2;
  if (!fits) {
    user_error("{}: expected a table '{}' with {} columns, got {}; download the folder again",
               files_.path().string(), table, structure_.width,
               found == nullptr ? "none" : to_string(found->shape));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0 || rows[i] >= found->shape[0]) {
      user_error(
          "{0}: the tokenizer gave the id {3}, but '{2}' has only {1} rows; use the tokenizer of this model",
          files_.path().string(), found->shape[0], table, rows[i]);
    }
    const std::vector<float> row = hub::floats_of(*found, rows[i] * structure_.width, structure_.width);
    for (size_t c = 0; c < row.size(); ++c) to[i * row.size() + c] += row[c];
  }
  files_.release(*found);
}

TextEncoder::States TextEncoder::embed(const TextIds& text) const {
  States states;
  states.hidden.resize(static_cast<size_t>(structure_.length * structure_.width + engine::kInputSlack));
  add_rows(structure_.table, text.ids, states.hidden);
  if (!structure_.positions.empty()) {
    const std::span<const int32_t> positions = positions_;
    add_rows(structure_.positions, positions.first(text.ids.size()), states.hidden);
  }
  if (!structure_.kept.empty()) states.kept.resize(static_cast<size_t>(length() * width()));
  return states;
}

void TextEncoder::keep(int64_t num_layers, States& states) const {
  const auto found = std::ranges::find(structure_.kept, num_layers);
  if (found == structure_.kept.end()) return;
  float* to = states.kept.data() + (found - structure_.kept.begin()) * structure_.width;
  for (int64_t t = 0; t < structure_.length; ++t)
    std::copy_n(states.hidden.data() + t * structure_.width, structure_.width, to + t * width());
}

void TextEncoder::encode_group(std::span<const TextIds> texts, std::vector<States>& states) {
  for (int64_t layer = 0; layer < structure_.num_layers; ++layer) {
    layer_.load(files_, fmt::format("{}{}.", structure_.layers, layer));
    for (size_t i = 0; i < states.size(); ++i) {
      engine::MicroBatch inputs({{"hidden", states[i].hidden.data()}, {"positions", positions_.data()}}, 1);
      if (structure_.heads > 0) inputs.add({"bias", structure_.bias(texts[i].num_tokens).data()});
      std::ranges::copy(layer_.run(inputs), states[i].hidden.begin());
      keep(layer + 1, states[i]);
    }
  }
  if (!norm_) return;
  norm_->load(files_, structure_.outer);
  for (States& each : states)
    std::ranges::copy(norm_->run({{{"hidden", each.hidden.data()}}, 1}), each.hidden.begin());
}

void TextEncoder::encode(std::span<const TextIds> texts,
                         FunctionRef<void(size_t text, std::span<const float> hidden)> take) {
  const int64_t bytes_of_text = (structure_.width + (structure_.kept.empty() ? 0 : width())) * length() * 4;
  const auto group = static_cast<size_t>(std::max<int64_t>(1, memory_bytes() / bytes_of_text));
  for (size_t from = 0; from < texts.size(); from += group) {
    const std::span<const TextIds> some = texts.subspan(from, std::min(group, texts.size() - from));
    std::vector<States> states;
    for (const TextIds& text : some) states.push_back(embed(text));
    encode_group(some, states);
    for (size_t i = 0; i < some.size(); ++i) {
      const std::span<const float> whole = states[i].hidden;
      take(from + i, structure_.kept.empty() ? whole.first(static_cast<size_t>(length() * structure_.width))
                                             : std::span<const float>(states[i].kept));
    }
  }
}

}  // namespace hearth::encoders
