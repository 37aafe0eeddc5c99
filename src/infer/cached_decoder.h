#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "encoders/model_part.h"
#include "hub/model_folder.h"
#include "infer/adapter_switch.h"
#include "models/decoder/config.h"

namespace hearth::infer {

struct CachedDecoderOptions {
  int64_t num_sequences = 1;
  int64_t tokens_per_sequence = 1024;  ///< size of the KV cache of each sequence
  encoders::Compute compute = {};
  DType precision = DType::f32;  ///< dtype of matmuls and activations; logits are always f32
  /// Adapters that sequences can select. All must have the same modules, ranks and scales (AdapterSwitch).
  std::vector<NamedAdapter> adapters;
};

/// Memory of a decoder, in bytes.
struct DecoderMemory {
  int64_t weights = 0;
  int64_t cache = 0;      ///< KV cache of all sequences
  int64_t workspace = 0;  ///< activations of the largest program

  int64_t total() const { return weights + cache + workspace; }
};

/// Tokens of a sequence. The first num_cached of them are in the KV cache.
struct CachedSequence {
  int32_t index = 0;    ///< index of the sequence in the KV cache
  int32_t adapter = 0;  ///< index of the adapter with which the KV cache was computed (AdapterSwitch)
  std::vector<int32_t> tokens;
  int64_t num_cached = 0;
  /// Number of tokens at the start that were computed in full chunks, and that another prompt can therefore
  /// reuse.
  int64_t num_prefilled = 0;

  int64_t num_pending() const { return std::ssize(tokens) - num_cached; }
};

/// A decoder with a KV cache for several sequences. The graph of the model with cached_attention is compiled
/// for chunks of kChunk tokens of one sequence (prefill), and for one token of each of up to kMaxRows
/// sequences (decoding). The bits of a token's logits depend on how the tokens before it were split into
/// chunks, but not on other sequences.
class CachedDecoder {
 public:
  static constexpr int64_t kChunk = 64;
  static constexpr int64_t kMaxRows = 8;

  /// Loads config.json, weights and adapter. The adapter is not merged into the weights.
  /// Throws a UserError if a file is missing or damaged, DoesNotFit if the GPU has too little free memory.
  CachedDecoder(const hub::ModelFolder& model, const CachedDecoderOptions& options);
  /// Creates a model with random initial weights, for benchmarks.
  CachedDecoder(models::DecoderConfig config, const CachedDecoderOptions& options);

  /// Returns the memory that a decoder would allocate, without opening a device or reading weights.
  static DecoderMemory plan(const hub::ModelFolder& model, const CachedDecoderOptions& options);
  /// Returns the memory of this decoder.
  DecoderMemory memory() const;

  /// Throws a UserError if an id is out of range.
  void check_ids(std::span<const int32_t> ids) const;
  /// Returns the index of an adapter; 0 for an empty name. Throws a UserError for an unknown name.
  int32_t adapter_index(std::string_view name) const { return adapters_.index_of(name); }
  /// Returns the number of cached tokens of `sequence` that a prompt with the same adapter can reuse: the
  /// full chunks of the common prefix, without the last token of the prompt, whose logits are needed. Returns
  /// 0 with LongRoPE, where cached keys depend on the length of the prompt.
  int64_t num_reusable(const CachedSequence& sequence, std::span<const int32_t> prompt) const;
  /// Removes all tokens that `prompt` cannot reuse, and returns the number of remaining tokens.
  int64_t keep_reusable(CachedSequence& sequence, std::span<const int32_t> prompt) const;
  /// Appends tokens, which are then pending. If they extend the context past the length at which LongRoPE
  /// switches to its long factors, all tokens are pending, because the cached keys have the short factors.
  void append(CachedSequence& sequence, std::span<const int32_t> ids) const;
  /// Computes the next pending tokens of a sequence, at most kChunk. Then logits(0) returns the logits of the
  /// last one.
  void run_chunk(CachedSequence& sequence);
  /// Computes the only pending token of each sequence. Then logits(i) returns the logits of sequences[i]. At
  /// most kMaxRows sequences, which must have the same program_key().
  void run_rows(std::span<CachedSequence* const> sequences);
  /// Computes all pending tokens; there must be at least one. Then logits(0) returns the logits of the last
  /// one.
  void run_pending(CachedSequence& sequence);
  /// Returns the logits [vocab] of a row of the last run, which are valid until the next run.
  std::span<const float> logits(int64_t row) const;
  /// Returns the properties that all sequences of a run must share: the adapter, and whether LongRoPE uses
  /// its long factors.
  std::pair<int32_t, bool> program_key(const CachedSequence& sequence) const {
    return {sequence.adapter, uses_long_rope(std::ssize(sequence.tokens))};
  }

  /// True if `id` is an end token, listed as eos_token_id in config.json or generation_config.json.
  bool is_end(int32_t id) const;
  const models::DecoderConfig& config() const { return config_; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t tokens_per_sequence() const { return tokens_per_sequence_; }
  engine::Engine& engine() const { return *engine_; }

 private:
  CachedDecoder(models::DecoderConfig config, const nn::Adapter& adapter,
                const CachedDecoderOptions& options);
  bool uses_long_rope(int64_t num_tokens) const;
  void set_row(int64_t row, const CachedSequence& sequence, int64_t token);
  void run(int64_t num_rows);

  models::DecoderConfig config_;
  std::vector<int32_t> end_ids_;
  int64_t num_sequences_, tokens_per_sequence_;
  std::vector<int64_t> row_counts_;  ///< numbers of rows of the decoding programs, ascending
  std::unique_ptr<engine::Engine> engine_;
  AdapterSwitch adapters_;
  /// Inputs of the programs.
  std::vector<int32_t> ids_, positions_, sequences_, last_, last_position_;
  std::vector<float> logits_;  ///< logits [rows, vocab] of the last run
};

}  // namespace hearth::infer
