#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "encoders/model_part.h"
#include "io/weight_files.h"
#include "text/tokenizer.h"

namespace hearth::encoders {

/// A text as a model reads it: padded ids, and how many of them are not padding.
struct TextIds {
  std::vector<int32_t> ids;
  int64_t num_tokens = 0;
};

/// What a tokenizer makes of a text, with what it puts around every text, cut and then padded to a length.
TextIds padded_ids(const text::Tokenizer& tokenizer, std::string_view text, int64_t length, int32_t pad);

/// Returns the number of token ids of a text, including the tokenizer's special tokens, before padded_ids
/// truncates it.
int64_t num_ids(const text::Tokenizer& tokenizer, std::string_view text);

/// A text model of layers that are alike. It reads its files layer by layer, for all texts together, and
/// holds one layer's weights; rows of tables come from the mapped files. Texts are padded to one length.
class TextEncoder {
 public:
  /// What a layer is given.
  struct Inputs {
    ir::ValueId hidden = ir::kNone;     ///< f32 [length, width]
    ir::ValueId bias = ir::kNone;       ///< f32 [heads, length, length], where there are heads of it
    ir::ValueId positions = ir::kNone;  ///< i32 [length], 0, 1, ...
  };
  /// What differs between models.
  struct Parts {
    int64_t width = 0;
    int64_t length = 0;      ///< tokens of every text
    std::string table;       ///< [vocabulary, width]
    std::string positions;   ///< [length or more, width], is added to the tokens; empty: none
    std::string layers;      ///< what names of layer i begin with, before "i."
    int64_t num_layers = 0;  ///< that run
    std::string outer;       ///< what names of the last norm begin with
    int64_t heads = 0;       ///< of the bias; 0: there is none
    /// After how many layers hidden states are kept, which are then side by side; empty: after the last.
    std::vector<int64_t> kept = {};
    /// The bias for a text of so many tokens, with slack; valid until the next call.
    std::function<std::span<const float>(int64_t num_tokens)> bias = {};
    std::function<ir::ValueId(nn::Builder&, const Inputs&)> grow_layer = {};
    std::function<ir::ValueId(nn::Builder&, ir::ValueId hidden)> grow_norm = {};  ///< empty: there is none
  };
  /// `files` outlives it.
  TextEncoder(Parts parts, const io::WeightFiles& files, const Compute& compute);
  TextEncoder(const TextEncoder&) = delete;
  TextEncoder& operator=(const TextEncoder&) = delete;

  int64_t width() const { return parts_.width * std::max<int64_t>(1, std::ssize(parts_.kept)); }
  int64_t length() const { return parts_.length; }
  /// Bytes of the layer that is in memory, with what it computes.
  int64_t memory_bytes() const { return layer_.memory_bytes(); }
  /// Hands out the hidden states [length, width()] of each text, in order. So many texts go through the
  /// layers together as have about a layer's memory.
  void encode(std::span<const TextIds> texts,
              FunctionRef<void(size_t text, std::span<const float> hidden)> take);

 private:
  struct States;
  ModelPart::Graph grow_layer(nn::Builder& builder) const;
  ModelPart::Graph grow_norm(nn::Builder& builder) const;
  States embed(const TextIds& text) const;
  void add_rows(const std::string& table, std::span<const int32_t> rows, std::span<float> to) const;
  void keep(int64_t num_layers, States& states) const;
  void encode_group(std::span<const TextIds> texts, std::vector<States>& states);

  Parts parts_;
  const io::WeightFiles& files_;
  std::vector<int32_t> positions_;
  ModelPart layer_;
  std::optional<ModelPart> norm_;
};

}  // namespace hearth::encoders
