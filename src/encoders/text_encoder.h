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

/// Token ids of a text, with padding. `num_tokens`: number of ids without padding.
struct TextIds {
  std::vector<int32_t> ids;
  int64_t num_tokens = 0;
};

/// Tokenizes a text with the special tokens around it, truncated to `length` tokens and padded to `length`
/// with the id `pad`.
TextIds padded_ids(const text::Tokenizer& tokenizer, std::string_view text, int64_t length, int32_t pad);

/// Returns the number of token ids of a text, including the tokenizer's special tokens, before padded_ids
/// truncates it.
int64_t num_ids(const text::Tokenizer& tokenizer, std::string_view text);

/// A text encoder of structurally equal layers. Reads the weights layer by layer and applies each layer to a
/// group of texts, so only one layer's weights are in memory; rows of embedding tables are read from the
/// mapped files.
class TextEncoder {
 public:
  /// Graph inputs of a layer.
  struct Inputs {
    ir::ValueId hidden = ir::kNone;     ///< hidden states, f32 [length, width]
    ir::ValueId bias = ir::kNone;       ///< f32 [heads, length, length], if Structure::heads > 0
    ir::ValueId positions = ir::kNone;  ///< positions 0, 1, ..., i32 [length]
  };
  /// Properties that differ between text models.
  struct Structure {
    int64_t width = 0;
    int64_t length = 0;  ///< tokens per text
    std::string table;   ///< name of the token embedding table [vocabulary, width]
    /// Name of the table of position embeddings [at least length, width], which are added to the token
    /// embeddings; empty: none.
    std::string positions;
    std::string layers;      ///< prefix of the names of all layers; layer i adds "i."
    int64_t num_layers = 0;  ///< number of layers to run
    std::string outer;       ///< prefix of the names of the final norm
    int64_t heads = 0;       ///< number of heads of the attention bias; 0: no bias
    /// Numbers of layers after which hidden states are kept and concatenated; empty: after the last layer
    /// only.
    std::vector<int64_t> kept = {};
    /// Returns the attention bias for a text of `num_tokens` tokens, followed by engine::kInputSlack bytes;
    /// valid until the next call.
    std::function<std::span<const float>(int64_t num_tokens)> bias = {};
    std::function<ir::ValueId(nn::Builder&, const Inputs&)> grow_layer = {};
    std::function<ir::ValueId(nn::Builder&, ir::ValueId hidden)> grow_norm = {};  ///< empty: no final norm
  };
  /// `files` must outlive this object.
  TextEncoder(Structure parts, const io::WeightFiles& files, const Compute& compute);
  TextEncoder(const TextEncoder&) = delete;
  TextEncoder& operator=(const TextEncoder&) = delete;

  /// Width of a hidden state in the output, with all kept layers concatenated.
  int64_t width() const { return structure_.width * std::max<int64_t>(1, std::ssize(structure_.kept)); }
  int64_t length() const { return structure_.length; }
  /// Bytes of the one layer that is in memory, including its activations.
  int64_t memory_bytes() const { return layer_.memory_bytes(); }
  /// Calls take(text, hidden) with the hidden states [length, width()] of each text in order. Texts pass
  /// through the layers in groups whose hidden states take about as much memory as a layer.
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

  Structure structure_;
  const io::WeightFiles& files_;
  std::vector<int32_t> positions_;
  ModelPart layer_;
  std::optional<ModelPart> norm_;
};

}  // namespace hearth::encoders
