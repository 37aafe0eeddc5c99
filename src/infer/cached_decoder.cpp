// Keys and values are persistent state with one slot per token and sequence, so all programs extend the same
// cache. Attention costs O(context) per token.
//
// A token gets the same bits in a program of 1, 2, 4 or 8 rows: CPU kernels compute rows independently, and
// use the same order of summation for up to 8 rows (tests/infer/batch_generator_test.cpp). On a GPU, kernel
// variants are chosen per shape, so there is a single program for decoding.
#include "infer/cached_decoder.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/run_files.h"
#include "engine/gpu_options.h"
#include "engine/objective.h"
#include "engine/plan_builder.h"
#include "hub/adapter.h"
#include "hub/weights.h"
#include "models/decoder/decoder.h"

namespace hearth::infer {
namespace {

using ir::ValueId;

constexpr int64_t kMaxGenerationConfigBytes = 1 << 22;

/// Computes the logits of the next token. Inputs: "tokens", "positions" (-1 for padding) and "sequences", all
/// [rows]; "last": indices of the rows whose logits are computed, one for a chunk, otherwise all rows;
/// "last_position" [1]: last position of the sequences, from which LongRoPE selects its factors.
class NextToken : public engine::Objective {
 public:
  NextToken(models::DecoderConfig config, int64_t num_sequences, int64_t tokens_per_sequence)
      : config_(std::move(config)),
        num_sequences_(num_sequences),
        tokens_per_sequence_(tokens_per_sequence) {}

  Graph build(nn::Builder& builder, engine::BatchShape shape) const override {
    const auto input = [&](const char* name, int64_t count) {
      return builder.input(name, {.dtype = DType::i32, .shape = {count}});
    };
    const ValueId tokens = input("tokens", shape.num_rows);
    const ValueId positions = input("positions", shape.num_rows);
    const ValueId sequences = input("sequences", shape.num_rows);
    const ValueId last = input("last", shape.num_rows == CachedDecoder::kChunk ? 1 : shape.num_rows);
    const ValueId last_position = input("last_position", 1);
    const models::DecoderOutputs out = models::build_decoder(builder, config_,
                                                             {.tokens = tokens,
                                                              .positions = positions,
                                                              .last_position = last_position,
                                                              .context = shape.num_rows,
                                                              .cache_slots = tokens_per_sequence_,
                                                              .cache_sequences = num_sequences_,
                                                              .sequences = sequences});
    const ValueId rows = builder.op("embedding", {last, out.hidden});
    const ValueId logits = builder.op("matmul", {rows, out.head}, {{"transpose_b", int64_t{1}}});
    return {.inputs = {tokens, positions, sequences, last, last_position}, .outputs = {logits}};
  }

 private:
  models::DecoderConfig config_;
  int64_t num_sequences_, tokens_per_sequence_;
};

/// Appends eos_token_id of generation_config.json, which is a number or a list, to `ends`.
void add_generation_ends(const fs::path& file, std::vector<int32_t>& ends) {
  if (!fs::exists(file)) return;
  const auto json =
      parse_json_object<nlohmann::json>(read_file(file, kMaxGenerationConfigBytes), file.string());
  const auto found = json.find("eos_token_id");
  if (found == json.end()) return;
  for (const auto& id : found->is_array() ? *found : nlohmann::json::array({*found})) {
    if (id.is_number_integer()) ends.push_back(id.get<int32_t>());
  }
}

/// Returns the adapter with which the graph is built: that of the model, otherwise the first one in the
/// options.
nn::Adapter adapter_of(const hub::ModelFolder& model, const CachedDecoderOptions& options) {
  if (model.adapter.empty() && options.adapters.empty()) return {};
  const fs::path path = model.adapter.empty() ? options.adapters[0].path : model.adapter;
  return hub::builder_adapter({.path = path.string()}, hub::read_adapter_config(path));
}

/// Returns the numbers of rows of the decoding programs: 1, 2, 4, ... up to the number of sequences, rounded
/// up to a power of two, or kMaxRows. On a GPU, returns the largest number only.
std::vector<int64_t> row_counts_of(const CachedDecoderOptions& options) {
  std::vector<int64_t> counts = {1};
  while (counts.back() < std::min(options.num_sequences, CachedDecoder::kMaxRows))
    counts.push_back(2 * counts.back());
  if (options.compute.gpu) counts.erase(counts.begin(), counts.end() - 1);
  return counts;
}

engine::EngineOptions engine_options(const models::DecoderConfig& config, const nn::Adapter& adapter,
                                     const CachedDecoderOptions& options) {
  engine::EngineOptions engine{
      .objective = std::make_shared<NextToken>(config, options.num_sequences, options.tokens_per_sequence),
      .adapter = adapter,
      .precision = options.precision,
      .num_threads = options.compute.num_threads,
      .winograd = options.compute.winograd};
  if (options.compute.gpu) engine::use_gpu(engine, *options.compute.gpu, options.compute.self_test);
  return engine;
}

/// Returns the numbers of rows of all programs.
std::vector<int64_t> program_sizes(const CachedDecoderOptions& options) {
  std::vector<int64_t> sizes = row_counts_of(options);
  sizes.push_back(CachedDecoder::kChunk);
  return sizes;
}

DecoderMemory memory_of(const engine::Plan& plan) {
  const int64_t cache = plan.layout->bytes_of(ir::Role::state);
  return {.weights = plan.kept_bytes() - cache, .cache = cache, .workspace = plan.arena_bytes};
}

}  // namespace

DecoderMemory CachedDecoder::plan(const hub::ModelFolder& model, const CachedDecoderOptions& options) {
  const auto config = models::read_decoder_config(model.model / kModelConfig);
  return memory_of(engine::make_plan(engine_options(config, adapter_of(model, options), options), {},
                                     program_sizes(options)));
}

DecoderMemory CachedDecoder::memory() const { return memory_of(engine_->plan()); }

CachedDecoder::CachedDecoder(models::DecoderConfig config, const nn::Adapter& adapter,
                             const CachedDecoderOptions& options)
    : config_(std::move(config)),
      num_sequences_(options.num_sequences),
      tokens_per_sequence_(options.tokens_per_sequence),
      row_counts_(row_counts_of(options)) {
  constexpr auto kSlack = engine::kInputSlack / int64_t{sizeof(int32_t)};
  for (std::vector<int32_t>* input : {&ids_, &positions_, &sequences_, &last_, &last_position_})
    input->resize(kChunk + kSlack);
  for (const int64_t id : config_.eos_ids) end_ids_.push_back(static_cast<int32_t>(id));
  if (config_.tied_head) hub::check_untied(adapter);
  engine_ = engine::evaluation_engine(engine_options(config_, adapter, options), program_sizes(options));
}

CachedDecoder::CachedDecoder(const hub::ModelFolder& model, const CachedDecoderOptions& options)
    : CachedDecoder(models::read_decoder_config(model.model / kModelConfig), adapter_of(model, options),
                    options) {
  add_generation_ends(model.model / "generation_config.json", end_ids_);
  model.adapter.empty() ? hub::load_model(*engine_, model.weights) : hub::load_model(*engine_, model);
  if (!options.adapters.empty()) adapters_ = AdapterSwitch(*engine_, options.adapters);
}

CachedDecoder::CachedDecoder(models::DecoderConfig config, const CachedDecoderOptions& options)
    : CachedDecoder(std::move(config), nn::Adapter(), options) {
  engine_->initialize();
}

bool CachedDecoder::is_end(int32_t id) const {
  return std::find(end_ids_.begin(), end_ids_.end(), id) != end_ids_.end();
}

void CachedDecoder::check_ids(std::span<const int32_t> ids) const {
  for (const int32_t id : ids) {
    if (id < 0 || id >= config_.vocab_size)
      user_error("token id {} is out of range; the model has ids 0 to {}", id, config_.vocab_size - 1);
  }
}

bool CachedDecoder::uses_long_rope(int64_t num_tokens) const {
  return !config_.rope.long_factor.empty() && num_tokens > config_.rope.original_positions;
}

int64_t CachedDecoder::num_reusable(const CachedSequence& sequence, std::span<const int32_t> prompt) const {
  if (!config_.rope.long_factor.empty()) return 0;
  const int64_t same = std::ranges::mismatch(sequence.tokens, prompt).in1 - sequence.tokens.begin();
  return std::min({sequence.num_prefilled, same, std::ssize(prompt) - 1}) / kChunk * kChunk;
}

int64_t CachedDecoder::keep_reusable(CachedSequence& sequence, std::span<const int32_t> prompt) const {
  sequence.num_cached = sequence.num_prefilled = num_reusable(sequence, prompt);
  sequence.tokens.resize(static_cast<size_t>(sequence.num_cached));
  return sequence.num_cached;
}

void CachedDecoder::append(CachedSequence& sequence, std::span<const int32_t> ids) const {
  const int64_t before = std::ssize(sequence.tokens);
  sequence.tokens.insert(sequence.tokens.end(), ids.begin(), ids.end());
  if (uses_long_rope(std::ssize(sequence.tokens)) && !uses_long_rope(before))
    sequence.num_cached = sequence.num_prefilled = 0;
}

void CachedDecoder::set_row(int64_t row, const CachedSequence& sequence, int64_t token) {
  const auto at = static_cast<size_t>(row);
  ids_[at] = sequence.tokens[static_cast<size_t>(token)];
  positions_[at] = static_cast<int32_t>(token);
  sequences_[at] = sequence.index;
}

void CachedDecoder::run_chunk(CachedSequence& sequence) {
  adapters_.use(*engine_, sequence.adapter);
  const int64_t count = std::min(sequence.num_pending(), kChunk);
  HEARTH_CHECK(count > 0 && std::ssize(sequence.tokens) <= tokens_per_sequence_);
  std::fill(positions_.begin(), positions_.end(), -1);
  for (int64_t i = 0; i < count; ++i) set_row(i, sequence, sequence.num_cached + i);
  last_[0] = static_cast<int32_t>(count) - 1;
  last_position_[0] = static_cast<int32_t>(sequence.tokens.size()) - 1;
  run(kChunk);
  if (sequence.num_prefilled == sequence.num_cached && count == kChunk) sequence.num_prefilled += kChunk;
  sequence.num_cached += count;
}

void CachedDecoder::run_rows(std::span<CachedSequence* const> sequences) {
  HEARTH_CHECK(!sequences.empty() && std::ssize(sequences) <= kMaxRows);
  adapters_.use(*engine_, sequences[0]->adapter);
  std::fill(positions_.begin(), positions_.end(), -1);
  last_position_[0] = 0;
  for (int64_t i = 0; i < std::ssize(sequences); ++i) {
    const CachedSequence& sequence = *sequences[static_cast<size_t>(i)];
    HEARTH_CHECK(sequence.num_pending() == 1 && std::ssize(sequence.tokens) <= tokens_per_sequence_);
    HEARTH_CHECK(program_key(sequence) == program_key(*sequences[0]));
    set_row(i, sequence, sequence.num_cached);
    last_position_[0] = std::max(last_position_[0], positions_[static_cast<size_t>(i)]);
  }
  for (int32_t i = 0; i < kMaxRows; ++i) last_[static_cast<size_t>(i)] = i;
  run(*std::ranges::lower_bound(row_counts_, std::ssize(sequences)));
  for (CachedSequence* sequence : sequences) sequence->num_cached += 1;
}

void CachedDecoder::run_pending(CachedSequence& sequence) {
  HEARTH_CHECK(sequence.num_pending() > 0);
  CachedSequence* const only[] = {&sequence};
  while (sequence.num_pending() > 0) sequence.num_pending() == 1 ? run_rows(only) : run_chunk(sequence);
}

void CachedDecoder::run(int64_t num_rows) {
  engine_->evaluate({{{"tokens", ids_.data()},
                      {"positions", positions_.data()},
                      {"sequences", sequences_.data()},
                      {"last", last_.data()},
                      {"last_position", last_position_.data()}},
                     num_rows});
  const std::span<const float> logits = engine_->output(0);
  logits_.assign(logits.begin(), logits.end());
  if (const auto cap = static_cast<float>(config_.head_cap); cap > 0) {
    for (float& logit : logits_) logit = cap * std::tanh(logit / cap);
  }
}

std::span<const float> CachedDecoder::logits(int64_t row) const {
  const auto vocab = static_cast<size_t>(config_.vocab_size);
  return std::span(logits_).subspan(static_cast<size_t>(row) * vocab, vocab);
}

}  // namespace hearth::infer
