#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "hub/model_folder.h"
#include "infer/batch_generator.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace hearth::serve {

/// Exception of TextService::submit() if the queue is full.
struct QueueIsFull {};

/// A request of a client. The scheduler thread calls its functions, which must not throw or block.
struct TextJob {
  infer::GenerationRequest request;
  infer::BatchGenerator::Emit emit;                  ///< receives the pieces of the answer
  std::function<bool()> is_wanted;                   ///< returns false if the client has left
  std::function<void(const std::string&)> on_fault;  ///< called with an error message, which ends the answer
};

/// A language model that generates answers for many clients. One thread owns the generator; all functions may
/// be called by any thread.
class TextService {
 public:
  /// Loads the model. `chat`: options of its chat template. `max_waiting`: max number of requests in the
  /// queue. Throws the UserErrors of BatchGenerator and of open_tokenizer().
  TextService(const hub::ModelFolder& model, text::ChatOptions chat, const infer::BatchOptions& options,
              size_t max_waiting);
  /// Stops the scheduler thread. Running answers get no more pieces.
  ~TextService();
  TextService(const TextService&) = delete;
  TextService& operator=(const TextService&) = delete;

  bool has_chat_template() const { return renderer_.has_value(); }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  /// Returns the token ids of a text that the model continues, with the tokens that the tokenizer adds at the
  /// start.
  std::vector<int32_t> text_prompt(std::string_view text) const;
  /// Renders messages with the chat template. Throws a UserError if the model has none, or if the template
  /// rejects the messages.
  std::string render_chat(const text::Json& messages) const;
  /// Returns the token ids of render_chat().
  std::vector<int32_t> chat_prompt(const text::Json& messages) const;
  /// Returns the bytes of a token in the middle of a text. They may be part of a UTF-8 character.
  std::string token_text(int32_t id) const;

  int64_t tokens_per_slot() const { return tokens_per_slot_; }
  /// Adds a request to the queue. Throws a UserError if its prompt is empty or too long, or if a token id is
  /// out of range. Throws QueueIsFull if the queue has `max_waiting` requests.
  void submit(TextJob job);
  /// Returns the counters of the generator; num_waiting is the number of requests in the queue of this
  /// object.
  infer::BatchCounters counters() const;

 private:
  struct Running {
    std::shared_ptr<TextJob> job;
    bool has_ended = false;
  };
  void schedule();
  void start(std::shared_ptr<TextJob> job);
  void check(const infer::GenerationRequest& request) const;

  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::optional<text::ChatRenderer> renderer_;
  /// Tokens of a short text. token_text() decodes them before its token, so that it is not the first of a
  /// text.
  std::vector<int32_t> context_ids_;
  std::string context_text_;
  infer::BatchGenerator generator_;  ///< used by thread_ only, after the constructor
  int64_t num_slots_, tokens_per_slot_, vocab_size_;
  size_t max_waiting_;
  /// Running requests by their id in the generator; used by thread_ only.
  std::map<int64_t, Running> running_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<TextJob>> waiting_;
  infer::BatchCounters counters_;
  std::string fault_;  ///< error after which the generator cannot be used any more; empty: none
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace hearth::serve
