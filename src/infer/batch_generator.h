#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "infer/generator.h"

namespace hearth::infer {

struct BatchOptions {
  int64_t num_slots = 4;           ///< max number of requests that are answered at the same time
  int64_t tokens_per_slot = 2048;  ///< size of each slot's KV cache: max tokens of a prompt and its answer
  encoders::Compute compute = {};
  DType precision = DType::f32;  ///< dtype of matmuls and activations; logits are always f32
  /// Adapters that requests can select. These, and the adapter of the model if it has one, must have the same
  /// modules, ranks and scales.
  std::vector<NamedAdapter> adapters;
};

/// Returns the memory that a BatchGenerator would allocate, without opening a device or reading weights.
DecoderMemory plan_batch(const hub::ModelFolder& model, const BatchOptions& options);
/// Throws a UserError if `memory` is more than `available_bytes`. The message recommends a number of slots
/// that fits, if there is one.
void check_fits(const DecoderMemory& memory, const BatchOptions& options, int64_t available_bytes);

/// A request for an answer.
struct GenerationRequest {
  std::vector<int32_t> prompt;  ///< at least one token
  AnswerOptions options;        ///< sampling, penalties, stop texts and max tokens
  /// Number of most likely tokens whose log-probabilities are reported; -1: no log-probabilities at all.
  int64_t top_logprobs = -1;
  std::string adapter;  ///< name of one of BatchOptions::adapters; empty: the model as it was loaded
};

struct TokenLogprob {
  int32_t id = 0;
  double logprob = 0;
};

/// Reason for the end of an answer. stop: an end token or a stop text; length: max_tokens or a full KV cache.
enum class FinishReason : uint8_t { stop, length };

/// A part of an answer. A request gets one piece per generated token, then one last piece without a token.
struct GeneratedPiece {
  std::optional<int32_t> id;  ///< the token; nullopt in the last piece
  /// New text that no later token can change: complete UTF-8 characters that cannot be the start of a stop
  /// text. May be empty. Valid during the call.
  std::string_view text;
  /// Natural logarithm of the token's probability by the model's logits, before penalties, logit_bias and
  /// temperature. 0 if log-probabilities were not requested.
  double logprob = 0;
  std::span<const TokenLogprob> top;   ///< the most likely tokens, most likely first; valid during the call
  std::optional<FinishReason> finish;  ///< set in the last piece
};

/// Counters since the start, and the current load.
struct BatchCounters {
  int64_t num_requests = 0;       ///< submitted requests
  int64_t num_finished = 0;       ///< requests that ended by stop or length
  int64_t num_cancelled = 0;      ///< requests that were cancelled
  int64_t num_prompt_tokens = 0;  ///< tokens of the prompts of started requests
  int64_t num_reused_tokens = 0;  ///< prompt tokens that were found in a KV cache
  int64_t num_generated_tokens = 0;
  int64_t num_decode_steps = 0;   ///< program runs that computed one token for each of 1 to 8 requests
  int64_t num_prompt_chunks = 0;  ///< program runs that computed a chunk of a prompt
  int64_t num_active = 0;         ///< requests that have a slot now
  int64_t num_waiting = 0;        ///< requests that wait for a slot now
};

/// A language model that generates answers to several requests at the same time (continuous batching). Each
/// slot has a KV cache for one request. A decode step computes the next token of all slots; prompts are
/// computed in chunks between decode steps. The tokens of an answer do not depend on other requests. On a
/// CPU, Generator and answer() generate the same tokens. Not thread-safe.
class BatchGenerator {
 public:
  /// Called by step() with each piece of an answer; returns false to cancel the request. Must not throw, and
  /// must not call functions of the BatchGenerator.
  using Emit = std::function<bool(const GeneratedPiece&)>;

  /// Loads config.json, weights and adapters, and allocates all memory. `tokenizer` must outlive the
  /// generator; null to return token ids only. Throws a UserError if a file is missing or damaged.
  BatchGenerator(const hub::ModelFolder& model, const text::Tokenizer* tokenizer,
                 const BatchOptions& options);
  /// Creates a model with random initial weights, for benchmarks.
  BatchGenerator(models::DecoderConfig config, const BatchOptions& options);
  ~BatchGenerator();

  /// Adds a request to the queue and returns its id. Throws a UserError if the prompt is empty, has an id out
  /// of range or does not fit in a slot, or the adapter is unknown.
  int64_t submit(GenerationRequest request, Emit emit);
  /// Assigns free slots to waiting requests, computes one chunk of a prompt and one decode step, and emits
  /// the new tokens. Returns false if there is no request.
  bool step();
  /// Cancels a request, which gets no more pieces. Does nothing if the request has ended.
  void cancel(int64_t id);

  const models::DecoderConfig& config() const;
  int64_t num_slots() const;
  int64_t tokens_per_slot() const;
  BatchCounters counters() const;
  DecoderMemory memory() const;

 private:
  class Batch;
  std::unique_ptr<Batch> batch_;
};

}  // namespace hearth::infer
