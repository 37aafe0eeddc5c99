#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "infer/cached_decoder.h"
#include "infer/sampler.h"
#include "text/tokenizer.h"

namespace hearth::infer {

struct GeneratorOptions {
  int64_t slots = 1024;  ///< size of the KV cache: max tokens of a prompt and its answer
  encoders::Compute compute = {};
  DType precision = DType::f32;  ///< dtype of matmuls and activations; logits are always f32
};

/// A language model that continues text, one sequence at a time.
class Generator {
 public:
  /// Loads config.json, weights and adapter; see CachedDecoder.
  Generator(const hub::ModelFolder& model, const GeneratorOptions& options);
  /// Creates a model with random initial weights, for benchmarks.
  Generator(models::DecoderConfig config, const GeneratorOptions& options);

  /// Clears the KV cache.
  void restart() { sequence_ = {}; }
  /// Reuses the KV cache for a new prompt `ids`: keeps the tokens of the common prefix, removes the others,
  /// and returns the number of kept tokens, which is less than the size of `ids`. Only full prefill chunks
  /// are kept, so that feeding the remaining tokens gives the same bits as feeding the full prompt.
  int64_t keep_prefix(std::span<const int32_t> ids);
  /// Appends tokens (at least one) to the sequence and returns the logits [vocab] of the token after them,
  /// which are valid until the next call. Throws a UserError if the KV cache is full or an id is out of
  /// range.
  std::span<const float> feed(std::span<const int32_t> ids);
  /// Returns the tokens in the KV cache.
  std::span<const int32_t> tokens() const { return sequence_.tokens; }
  /// Returns the size of the KV cache in tokens.
  int64_t num_slots() const { return decoder_.tokens_per_sequence(); }
  /// Returns the predicted seconds to compute a prompt of `num_tokens` (Plan::evaluation_seconds).
  double prompt_seconds(int64_t num_tokens) const;
  const models::DecoderConfig& config() const { return decoder_.config(); }

  /// True if `id` is an end token, listed as eos_token_id in config.json or generation_config.json.
  bool is_end(int32_t id) const { return decoder_.is_end(id); }

 private:
  CachedDecoder decoder_;
  CachedSequence sequence_;
};

struct AnswerOptions {
  SamplerOptions sampler;
  int64_t max_tokens = 256;
  std::vector<std::string> stop;  ///< stop texts; the answer ends before the first one
};

struct Answer {
  std::vector<int32_t> ids;  ///< ids of the generated tokens, without the end token
  std::string text;          ///< text of the tokens, without the stop text
  bool ended = false;  ///< true if ended by an end token or stop text; false: max_tokens or full KV cache
};

/// Generates the answer to a prompt. `prompt`: the tokens of the prompt that are not in the KV cache yet; at
/// least one. `emit` receives the text in pieces, as soon as no later token can change it: complete UTF-8
/// characters that cannot be the start of a stop text. `tokenizer`: null to return token ids only.
Answer answer(Generator& generator, const text::Tokenizer* tokenizer, std::span<const int32_t> prompt,
              const AnswerOptions& options, FunctionRef<void(std::string_view)> emit);

}  // namespace hearth::infer
