#pragma once

#include "data/loader.h"
#include "tasks/task.h"

namespace hearth::tasks {

/// Said after the number of training images that LoaderOptions::balance draws.
inline constexpr const char* kBalanced = " (each class drawn equally often)";

/// Micro-batches of a row source, from a position or from the first row. The source must outlive the stream.
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

}  // namespace hearth::tasks
