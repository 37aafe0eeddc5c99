// A request waits in a queue until a slot is free. Then its prompt is computed in chunks: one chunk per
// step(), oldest request first. After its prompt, a slot takes part in each decode step.
#include "infer/batch_generator.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "infer/answer_text.h"

namespace hearth::infer {
namespace {

struct QueuedRequest {
  int64_t id = 0;
  GenerationRequest request;
  BatchGenerator::Emit emit;
};

/// State of a request that has a slot.
struct ActiveRequest {
  ActiveRequest(QueuedRequest from, const text::Tokenizer* tokenizer, int64_t tokens_per_slot)
      : queued(std::move(from)),
        sampler(queued.request.options.sampler),
        text(tokenizer, queued.request.prompt, queued.request.options.stop),
        max_length(std::min(std::ssize(queued.request.prompt) + queued.request.options.max_tokens,
                            tokens_per_slot)) {}

  QueuedRequest queued;
  Sampler sampler;
  AnswerText text;
  int64_t max_length;  ///< max tokens of prompt and answer
};

struct Slot {
  CachedSequence sequence;
  std::optional<ActiveRequest> active;
  int64_t last_request = 0;  ///< id of the last request that used the slot
};

CachedDecoderOptions decoder_options(const BatchOptions& options) {
  return {.num_sequences = options.num_slots,
          .tokens_per_sequence = options.tokens_per_slot,
          .compute = options.compute,
          .precision = options.precision,
          .adapters = options.adapters};
}

/// Returns the logarithm of the sum of exp(logits).
double log_sum_exp(std::span<const float> logits) {
  const double max = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  return max + std::log(sum);
}

/// Returns the `count` most likely tokens, most likely first. For equal logits, the lower id comes first.
std::vector<TokenLogprob> top_tokens(std::span<const float> logits, double log_sum, int64_t count) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::min(count, std::ssize(ids));
  std::partial_sort(ids.begin(), end, ids.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  std::vector<TokenLogprob> found;
  for (auto id = ids.begin(); id != end; ++id)
    found.push_back({.id = *id, .logprob = logits[static_cast<size_t>(*id)] - log_sum});
  return found;
}

}  // namespace

DecoderMemory plan_batch(const hub::ModelFolder& model, const BatchOptions& options) {
  return CachedDecoder::plan(model, decoder_options(options));
}

void check_fits(const DecoderMemory& memory, const BatchOptions& options, int64_t available_bytes) {
  if (memory.total() <= available_bytes) return;
  const int64_t slot_bytes = (memory.cache + options.num_slots - 1) / options.num_slots;
  const int64_t num_fitting = (available_bytes - memory.weights - memory.workspace) / slot_bytes;
  const std::string advice =
      num_fitting > 0 ? fmt::format("use --slots {} or a shorter --context", num_fitting)
      : memory.total() - memory.cache < available_bytes ? "use --slots 1 and a shorter --context"
                                                        : "use a smaller model";
  user_error("{} slots of {} tokens need {}, but {} are available; {}", options.num_slots,
             options.tokens_per_slot, human_bytes(memory.total()), human_bytes(available_bytes), advice);
}

class BatchGenerator::Batch {
 public:
  Batch(CachedDecoder decoder, const text::Tokenizer* tokenizer)
      : decoder_(std::move(decoder)),
        tokenizer_(tokenizer),
        slots_(static_cast<size_t>(decoder_.num_sequences())) {
    for (size_t i = 0; i < slots_.size(); ++i) slots_[i].sequence.index = static_cast<int32_t>(i);
  }

  int64_t submit(GenerationRequest request, Emit emit) {
    if (request.prompt.empty()) user_error("the prompt has no tokens; use a prompt with at least one");
    if (std::ssize(request.prompt) > decoder_.tokens_per_sequence()) {
      user_error("the prompt has {} tokens, but a slot holds {}; raise --context", request.prompt.size(),
                 decoder_.tokens_per_sequence());
    }
    decoder_.check_ids(request.prompt);
    decoder_.adapter_index(request.adapter);
    queue_.push_back(
        {.id = ++counters_.num_requests, .request = std::move(request), .emit = std::move(emit)});
    return counters_.num_requests;
  }

  bool step() {
    start_requests();
    if (num_active() == 0) return false;
    compute_chunk();
    decode();
    return true;
  }

  void cancel(int64_t id) {
    const auto removed = std::erase_if(queue_, [&](const QueuedRequest& queued) { return queued.id == id; });
    counters_.num_cancelled += static_cast<int64_t>(removed);
    for (Slot& slot : slots_) {
      if (slot.active && slot.active->queued.id == id) cancel(slot);
    }
  }

  BatchCounters counters() const {
    BatchCounters counters = counters_;
    counters.num_waiting = std::ssize(queue_);
    counters.num_active = num_active();
    return counters;
  }
  const CachedDecoder& decoder() const { return decoder_; }

 private:
  int64_t num_active() const {
    return std::ranges::count_if(slots_, [](const Slot& slot) { return slot.active.has_value(); });
  }

  /// Assigns free slots to waiting requests. A request gets the slot with the longest reusable prefix; if
  /// several slots are equal, the least recently used one.
  void start_requests() {
    while (!queue_.empty()) {
      const GenerationRequest& request = queue_.front().request;
      const int32_t adapter = decoder_.adapter_index(request.adapter);
      Slot* best = nullptr;
      int64_t best_reusable = 0;
      for (Slot& slot : slots_) {
        if (slot.active) continue;
        const int64_t reusable =
            slot.sequence.adapter == adapter ? decoder_.num_reusable(slot.sequence, request.prompt) : 0;
        if (best == nullptr || reusable > best_reusable ||
            (reusable == best_reusable && slot.last_request < best->last_request)) {
          best = &slot;
          best_reusable = reusable;
        }
      }
      if (best == nullptr) return;
      if (best_reusable == 0) best->sequence = {.index = best->sequence.index, .adapter = adapter};
      start(*best);
    }
  }

  void start(Slot& slot) {
    slot.last_request = queue_.front().id;
    slot.active.emplace(std::move(queue_.front()), tokenizer_, decoder_.tokens_per_sequence());
    queue_.pop_front();
    const std::span<const int32_t> prompt = slot.active->queued.request.prompt;
    const int64_t num_reused = decoder_.keep_reusable(slot.sequence, prompt);
    decoder_.append(slot.sequence, prompt.subspan(static_cast<size_t>(num_reused)));
    counters_.num_prompt_tokens += std::ssize(prompt);
    counters_.num_reused_tokens += num_reused;
  }

  /// Computes a chunk of the oldest request that has more than one pending token.
  void compute_chunk() {
    Slot* oldest = nullptr;
    for (Slot& slot : slots_) {
      if (!slot.active || slot.sequence.num_pending() <= 1) continue;
      if (oldest == nullptr || slot.last_request < oldest->last_request) oldest = &slot;
    }
    if (oldest == nullptr) return;
    decoder_.run_chunk(oldest->sequence);
    ++counters_.num_prompt_chunks;
    if (oldest->sequence.num_pending() == 0) choose_tokens({{oldest}});
  }

  /// Computes the next token of all slots that have one pending token.
  void decode() {
    std::map<std::pair<int32_t, bool>, std::vector<Slot*>> groups;
    for (Slot& slot : slots_) {
      if (slot.active && slot.sequence.num_pending() == 1)
        groups[decoder_.program_key(slot.sequence)].push_back(&slot);
    }
    for (const auto& [key, group] : groups) {
      for (size_t i = 0; i < group.size(); i += CachedDecoder::kMaxRows)
        decode(std::span(group).subspan(i, std::min<size_t>(CachedDecoder::kMaxRows, group.size() - i)));
    }
  }

  void decode(std::span<Slot* const> slots) {
    std::vector<CachedSequence*> sequences;
    for (Slot* slot : slots) sequences.push_back(&slot->sequence);
    decoder_.run_rows(sequences);
    ++counters_.num_decode_steps;
    choose_tokens(slots);
  }

  /// Samples the next token of each slot from its row of logits, and emits it.
  void choose_tokens(std::span<Slot* const> slots) {
    std::vector<int32_t> ids(slots.size());
    const auto choose = [&](int64_t row, int) {
      const auto i = static_cast<size_t>(row);
      const CachedSequence& sequence = slots[i]->sequence;
      if (std::ssize(sequence.tokens) < slots[i]->active->max_length)
        ids[i] = slots[i]->active->sampler.next(decoder_.logits(row), sequence.tokens);
    };
    ThreadPool& threads = decoder_.engine().threads();
    threads.run_tasks(std::ssize(slots), threads.size(), choose);
    for (size_t i = 0; i < slots.size(); ++i) {
      if (std::ssize(slots[i]->sequence.tokens) < slots[i]->active->max_length) {
        add_token(*slots[i], ids[i], decoder_.logits(static_cast<int64_t>(i)));
      } else {
        finish(*slots[i], FinishReason::length);
      }
    }
  }

  void add_token(Slot& slot, int32_t id, std::span<const float> logits) {
    ActiveRequest& active = *slot.active;
    const bool is_end = decoder_.is_end(id) || (tokenizer_ != nullptr && tokenizer_->eos() == id);
    if (is_end) return finish(slot, FinishReason::stop);
    ++counters_.num_generated_tokens;
    GeneratedPiece piece{.id = id, .text = active.text.add(id)};
    std::vector<TokenLogprob> top;
    if (const int64_t count = active.queued.request.top_logprobs; count >= 0) {
      const double log_sum = log_sum_exp(logits);
      piece.logprob = logits[static_cast<size_t>(id)] - log_sum;
      top = top_tokens(logits, log_sum, count);
      piece.top = top;
    }
    if (!active.queued.emit(piece)) return cancel(slot);
    if (active.text.is_stopped()) return finish(slot, FinishReason::stop);
    if (std::ssize(slot.sequence.tokens) + 1 == active.max_length) return finish(slot, FinishReason::length);
    decoder_.append(slot.sequence, {{id}});
  }

  void finish(Slot& slot, FinishReason reason) {
    slot.active->queued.emit({.text = slot.active->text.finish(), .finish = reason});
    slot.active.reset();
    ++counters_.num_finished;
  }

  void cancel(Slot& slot) {
    slot.active.reset();
    slot.sequence.tokens.resize(static_cast<size_t>(slot.sequence.num_cached));
    ++counters_.num_cancelled;
  }

  CachedDecoder decoder_;
  const text::Tokenizer* tokenizer_;
  std::vector<Slot> slots_;
  std::deque<QueuedRequest> queue_;
  BatchCounters counters_;  ///< without num_active and num_waiting
};

BatchGenerator::BatchGenerator(const hub::ModelFolder& model, const text::Tokenizer* tokenizer,
                               const BatchOptions& options)
    : batch_(std::make_unique<Batch>(CachedDecoder(model, decoder_options(options)), tokenizer)) {}
BatchGenerator::BatchGenerator(models::DecoderConfig config, const BatchOptions& options)
    : batch_(std::make_unique<Batch>(CachedDecoder(std::move(config), decoder_options(options)), nullptr)) {}
BatchGenerator::~BatchGenerator() = default;

int64_t BatchGenerator::submit(GenerationRequest request, Emit emit) {
  return batch_->submit(std::move(request), std::move(emit));
}
bool BatchGenerator::step() { return batch_->step(); }
void BatchGenerator::cancel(int64_t id) { batch_->cancel(id); }
const models::DecoderConfig& BatchGenerator::config() const { return batch_->decoder().config(); }
int64_t BatchGenerator::num_slots() const { return batch_->decoder().num_sequences(); }
int64_t BatchGenerator::tokens_per_slot() const { return batch_->decoder().tokens_per_sequence(); }
BatchCounters BatchGenerator::counters() const { return batch_->counters(); }
DecoderMemory BatchGenerator::memory() const { return batch_->decoder().memory(); }

}  // namespace hearth::infer
