#include "serve/text_service.h"

#include <algorithm>

#include "base/error.h"

namespace hearth::serve {

TextService::TextService(const hub::ModelFolder& model, text::ChatOptions chat,
                         const infer::BatchOptions& options, size_t max_waiting)
    : tokenizer_(text::open_tokenizer(model.text)),
      generator_(model, tokenizer_.get(), options),
      num_slots_(generator_.num_slots()),
      tokens_per_slot_(generator_.tokens_per_slot()),
      vocab_size_(generator_.config().vocab_size),
      max_waiting_(max_waiting) {
  const text::ChatSetup setup = text::read_chat_setup(model.text, *tokenizer_);
  if (setup.chat_template) {
    chat.bos_token = setup.bos_token;
    chat.eos_token = setup.eos_token;
    renderer_.emplace(text::Template(*setup.chat_template, setup.template_name), std::move(chat));
  }
  tokenizer_->encode("a", text::SpecialTokens::as_text, context_ids_);
  context_text_ = tokenizer_->decode(context_ids_);
  thread_ = std::thread([this] { schedule(); });
}

TextService::~TextService() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::vector<int32_t> TextService::text_prompt(std::string_view text) const {
  std::vector<int32_t> ids = tokenizer_->special().prefix;
  if (!text.empty()) tokenizer_->encode(text, text::SpecialTokens::as_text, ids);
  if (ids.empty() && tokenizer_->bos()) ids.push_back(*tokenizer_->bos());
  return ids;
}

std::string TextService::render_chat(const text::Json& messages) const {
  if (!renderer_) user_error("the model has no chat template; use /v1/completions");
  try {
    return renderer_->prompt(messages, nullptr);
  } catch (const text::RecordError& error) {
    user_error("messages: {}", error.what());
  }
}

std::vector<int32_t> TextService::chat_prompt(const text::Json& messages) const {
  std::vector<int32_t> ids;
  tokenizer_->encode(render_chat(messages), text::SpecialTokens::parsed, ids);
  return ids;
}

std::string TextService::token_text(int32_t id) const {
  std::vector<int32_t> ids = context_ids_;
  ids.push_back(id);
  return tokenizer_->decode(ids).substr(context_text_.size());
}

void TextService::check(const infer::GenerationRequest& request) const {
  if (request.prompt.empty()) user_error("the prompt has no tokens; send at least one");
  if (std::ssize(request.prompt) >= tokens_per_slot_)
    user_error(
        "the prompt has {} tokens, but prompt and answer together can have at most {}; shorten the prompt, "
        "or start the server with a larger --context",
        request.prompt.size(), tokens_per_slot_);
  const auto is_unknown = [&](int64_t id) { return id < 0 || id >= vocab_size_; };
  for (const int32_t id : request.prompt)
    if (is_unknown(id))
      user_error("prompt: token {} is out of range; the model has {} tokens", id, vocab_size_);
  for (const auto& [id, bias] : request.options.sampler.logit_bias)
    if (is_unknown(id))
      user_error("logit_bias: token {} is out of range; the model has {} tokens", id, vocab_size_);
}

void TextService::submit(TextJob job) {
  check(job.request);
  const int64_t rest = tokens_per_slot_ - std::ssize(job.request.prompt);
  int64_t& max_tokens = job.request.options.max_tokens;
  max_tokens = max_tokens == 0 ? rest : std::min(max_tokens, rest);
  {
    const std::lock_guard lock(mutex_);
    if (!fault_.empty()) throw std::runtime_error(fault_);
    if (waiting_.size() >= max_waiting_) throw QueueIsFull();
    waiting_.push_back(std::make_shared<TextJob>(std::move(job)));
  }
  changed_.notify_all();
}

infer::BatchCounters TextService::counters() const {
  const std::lock_guard lock(mutex_);
  infer::BatchCounters counters = counters_;
  counters.num_waiting = std::ssize(waiting_);
  return counters;
}

/// Submits a job to the generator, which never has more jobs than slots: jobs whose client leaves while they
/// are in the queue are not computed.
void TextService::start(std::shared_ptr<TextJob> job) {
  if (!job->is_wanted()) return;
  const auto id = std::make_shared<int64_t>(-1);
  const auto emit = [this, id, raw = job.get()](const infer::GeneratedPiece& piece) {
    const bool is_wanted = raw->emit(piece);
    if (piece.finish || !is_wanted) running_.at(*id).has_ended = true;
    return is_wanted;
  };
  try {
    *id = generator_.submit(job->request, emit);
    running_[*id] = {.job = std::move(job)};
  } catch (const std::exception& error) {
    job->on_fault(error.what());
  }
}

/// Runs thread_: starts jobs, cancels those whose client has left, and generates the next tokens.
void TextService::schedule() {
  while (true) {
    std::vector<std::shared_ptr<TextJob>> started;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_ending_ || !running_.empty() || !waiting_.empty(); });
      if (is_ending_) return;
      while (!waiting_.empty() && std::ssize(running_) + std::ssize(started) < num_slots_) {
        started.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
      }
    }
    for (auto& job : started) start(std::move(job));
    for (auto& [id, running] : running_) {
      if (running.job->is_wanted()) continue;
      generator_.cancel(id);
      running.has_ended = true;
    }
    std::string fault;
    try {
      generator_.step();
    } catch (const std::exception& error) {
      fault = error.what();
    }
    std::erase_if(running_, [](const auto& entry) { return entry.second.has_ended; });
    const std::lock_guard lock(mutex_);
    counters_ = generator_.counters();
    if (fault.empty()) continue;
    fault_ = fault;
    for (const auto& [id, running] : running_) running.job->on_fault(fault);
    for (const auto& job : waiting_) job->on_fault(fault);
    running_.clear();
    waiting_.clear();
  }
}

}  // namespace hearth::serve
