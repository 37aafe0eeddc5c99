#pragma once

#include <algorithm>
#include <optional>

#include "base/function_ref.h"
#include "data/class_balance.h"
#include "data/loader.h"
#include "tasks/task.h"

namespace hearth::tasks {

/// Text printed after the number of training images if classes are balanced.
inline constexpr const char* kBalanced = " (each class drawn equally often)";

/// Returns the options for training rows: those of a loader, with the class balance if there is one.
inline data::LoaderOptions with_balance(data::LoaderOptions options,
                                        const std::optional<data::ClassBalance>& balance) {
  options.balance = balance ? &*balance : nullptr;
  return options;
}

/// Micro-batches of a row source, starting at a position or, without one, at the first row. The source must
/// outlive the stream.
class LoaderStream : public BatchStream {
 public:
  LoaderStream(const data::RowSource& rows, const data::LoaderOptions& options,
               const data::LoaderPosition& from)
      : loader_(rows, options, from) {}
  LoaderStream(const data::RowSource& rows, const data::LoaderOptions& options) : loader_(rows, options) {}
  engine::MicroBatch next() override { return engine::MicroBatch(loader_.next()); }

 private:
  data::Loader loader_;
};

/// Calls show(batch, row) for each row that training reads, starting at `from`: at most `count` rows, and at
/// most rows.num_rows(). `row`: index of the row in the batch.
inline void for_rows_from(const data::RowSource& rows, const data::LoaderOptions& options,
                          const data::LoaderPosition& from, int64_t count,
                          FunctionRef<void(const data::Batch&, int64_t row)> show) {
  data::Loader loader(rows, options, from);
  count = std::min(count, rows.num_rows());
  for (int64_t done = 0; done < count;) {
    const data::Batch& batch = loader.next();
    for (int64_t row = 0; row < batch.count && done < count; ++row, ++done) show(batch, row);
  }
}

/// Held-out micro-batches of rows that belong to the stream.
template <typename Rows>
class HeldOutStream : public BatchStream {
 public:
  HeldOutStream(Rows rows, const data::LoaderOptions& options)
      : rows_(std::move(rows)), loader_(rows_, data::in_order(options)) {}
  engine::MicroBatch next() override { return engine::MicroBatch(loader_.next()); }

 private:
  Rows rows_;
  data::Loader loader_;
};

}  // namespace hearth::tasks
