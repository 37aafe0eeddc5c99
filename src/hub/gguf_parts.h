#pragma once

#include <array>
#include <string>
#include <vector>

#include "io/gguf.h"
#include "models/decoder/config.h"

namespace hearth::hub {

/// Families (model_type in config.json) that can be read from GGUF files and exported to them.
inline constexpr std::array kGgufFamilies = {"llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2"};

/// Names of the embedding table and the LM head in GGUF files.
inline constexpr const char *kGgufEmbeddings = "token_embd.weight", *kGgufHead = "output.weight";

/// Returns llama.cpp's name of the architecture of a model family.
std::string gguf_architecture(const models::DecoderConfig& config);

/// A tensor of a GGUF file, and the name of the model's tensor to which it belongs. RoPE tables have no
/// source: their values are computed.
struct GgufPart {
  std::string source;
  io::GgufTensor target;
  /// Number of heads whose rows are interleaved for RoPE (interleaved_row); 0: rows are not reordered.
  int64_t heads = 0;
  float offset = 0;                ///< number that is added to the model's values in the file
  std::vector<float> values = {};  ///< values of a RoPE table; empty for other tensors
};

/// Returns the tensors of a model's GGUF file, in layer order. The types are not set.
std::vector<GgufPart> gguf_parts(const models::DecoderConfig& config);

/// Returns query_pre_attn_scalar of a Gemma 2 model, which llama.cpp derives from the number of layers.
int64_t gemma2_query_size(const models::DecoderConfig& config);

/// Returns the row in the GGUF file of row `row` of a query or key matrix with `num_rows` rows. RoPE pairs
/// element i of a head with element i + head_size / 2 in transformers' layout, and adjacent elements in
/// llama.cpp's.
int64_t interleaved_row(int64_t row, int64_t num_rows, int64_t num_heads);

/// Returns the divisor of each RoPE frequency with llama3 scaling (tensor rope_freqs.weight).
std::vector<double> llama3_factors(const models::RopeOptions& rope, int64_t head_size);

}  // namespace hearth::hub
