#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/images/image.h"
#include "data/loader.h"
#include "engine/engine.h"
#include "io/report.h"

namespace hearth::tasks {

/// An image that an evaluation generated, written to the run folder as samples/step-STEP-NAME.png
/// (io::kSamplesFolder).
struct SampleImage {
  std::string name;  ///< NAME of the file, letters and digits
  data::Image image;
};

/// Results of an evaluation on held-out data.
struct Evaluation {
  double loss = 0;   ///< mean over samples
  double score = 0;  ///< higher is better; the weights with the highest score are saved as the best ones
  /// Further metrics for the log, such as {"accuracy", 0.9851}.
  std::vector<std::pair<const char*, double>> metrics;
  std::vector<int64_t> confusion;  ///< counts [true class][predicted class]; empty: the task has no classes
  /// Contents for report.html: sections of charts, predictions of samples, tables, strips (rows of images),
  /// and the images with the worst predictions.
  std::vector<io::ReportSection> sections;
  std::vector<io::SamplePrediction> samples, mistakes;
  std::vector<io::ReportTable> tables;
  std::vector<io::ImageStrip> strips, worst_strips;
  /// Generated images, which are written to the folder io::kSamplesFolder of the run.
  std::vector<SampleImage> images;
};

/// Endless stream of training micro-batches, epoch after epoch.
class BatchStream {
 public:
  virtual ~BatchStream() = default;
  /// Returns the next micro-batch. Its staging memory stays valid until the second-next call of next().
  /// Throws a UserError if a sample cannot be read.
  virtual engine::MicroBatch next() = 0;
};

/// A stream that can return the next micro-batch in advance (peek()).
class LookaheadStream : public BatchStream {
 public:
  explicit LookaheadStream(std::unique_ptr<BatchStream> stream) : stream_(std::move(stream)) {}
  engine::MicroBatch next() override;
  /// Returns the micro-batch that next() will return; null if it cannot be read (next() then throws). Its
  /// memory stays valid as long as if next() had returned it.
  const engine::MicroBatch* peek();

 private:
  std::unique_ptr<BatchStream> stream_;
  std::optional<engine::MicroBatch> next_batch_;
};

/// The data, objective and evaluation of a run. A row is the unit of micro-batches (an image, or a row of
/// tokens); a sample is the unit that the loss is averaged over.
class Task {
 public:
  virtual ~Task() = default;
  virtual int64_t num_rows() const = 0;  ///< number of rows that an epoch trains
  /// Number of rows in the training data; may exceed num_rows(), because an epoch may leave out a smaller
  /// last micro-batch.
  virtual int64_t num_data_rows() const { return num_rows(); }
  virtual int64_t num_eval_rows() const = 0;  ///< number of rows that an evaluation reads
  /// Returns the number of samples in `count` training rows from position `from` on.
  virtual int64_t num_samples(const data::LoaderPosition& from, int64_t count) const = 0;
  /// Returns the row lengths (BatchShape::row_length) that occur in the data, longest first; empty: all rows
  /// have the objective's default length.
  virtual std::vector<int64_t> row_lengths() const { return {}; }
  /// Returns the micro-batch sizes that evaluate() uses, for which programs are compiled. `batch`: rows of a
  /// training micro-batch.
  virtual std::vector<int64_t> eval_sizes(int64_t batch) const;
  /// True if begin() evaluates training rows, so that their row lengths need an evaluation program.
  virtual bool evaluates_training_rows() const { return false; }
  using Say = std::function<void(const std::string&)>;
  /// Precomputes data (latents, embeddings) on the training device, before the run allocates memory there.
  /// May take long; reports progress with `say`.
  virtual void prepare(const Say&) {}
  /// True if prepare() has nothing to compute.
  virtual bool is_prepared() const { return true; }
  /// Computes results of the initial weights that training needs (DPO: reference log-probabilities). May take
  /// long; reports progress with `say`.
  virtual void begin(engine::Engine&, const Say&) {}
  /// Write the results of begin() to the run folder, and read them when the run is resumed. Throws a
  /// UserError if they are missing or belong to other data.
  virtual void save_initial_results(const fs::path&) const {}
  virtual void resume(const fs::path&) {}
  /// Opens a stream of a worker's share of the training data. `from`: position of the first row, the start of
  /// a step. An epoch must have at least one micro-batch of the share.
  virtual std::unique_ptr<BatchStream> open(const data::LoaderPosition& from,
                                            const data::LoaderShare& share) const = 0;
  std::unique_ptr<BatchStream> open(const data::LoaderPosition& from) const { return open(from, {}); }
  /// Opens an endless stream of the held-out rows in order, without augmentation. Null: the rows are no
  /// images. The task must outlive the stream.
  virtual std::unique_ptr<BatchStream> open_held_out() const { return nullptr; }
  /// Evaluates the current weights on the held-out rows. `num_shown`: max samples that are stored for the
  /// report.
  virtual Evaluation evaluate(engine::Engine& engine, int64_t num_shown) const = 0;
  /// Returns the class names by class index; empty: the task has no classes.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// Returns the abbreviated name of a sample, for throughputs such as "120 img/s": "img", "tok".
  virtual const char* unit() const = 0;
  /// Returns a summary of the data for the start of a run: "70 training and 32 validation images".
  virtual std::string describe() const = 0;
  /// Returns warnings about the data, one per line; empty if there are none.
  virtual std::string warning() const { return ""; }
  /// Returns a warning that concerns training only, not evaluation; empty if there is none.
  virtual std::string training_warning() const { return ""; }
  /// Returns a score as text: "accuracy 98.51%".
  virtual std::string score_text(double score) const = 0;
  /// Returns the text printed after an evaluation's loss.
  virtual std::string evaluation_text(const Evaluation& found) const { return score_text(found.score); }
  /// Adds the data and the last evaluation to report.html; `log` is trainer_log.jsonl with the curves.
  virtual void report(const Evaluation& last, const fs::path& log, io::ReportData& data) const = 0;
  /// Adds training rows to `page` as the model sees them, starting at `from`: at most `count`, and at most
  /// one epoch. Images are augmented and cropped, and shown with their labels; rows of tokens are shown as
  /// text. DiffuseTask ignores `from`. Throws a UserError if the data cannot be shown.
  virtual void show_samples(const data::LoaderPosition& from, int64_t count, io::ReportData& page) const = 0;
  /// Returns the last line of a finished run, for scripts, with the score of its best evaluation: "mIoU:
  /// 0.9512"; empty: none.
  virtual std::string last_line(const fs::path& /*log*/) const { return ""; }
  /// Writes result tables in the formats of other tools (Ultralytics' results.csv) from the run's log. Called
  /// after each evaluation.
  virtual void write_tables(const fs::path& /*folder*/, int64_t /*steps_per_epoch*/) const {}
  /// Writes files that accompany saved weights of this dtype to their folder, such as config.json.
  virtual void save_companions(const fs::path&, DType) const {}
  /// Returns the bytes of host staging memory for inputs, which the arena does not include.
  virtual int64_t staging_bytes() const = 0;
};

/// Returns "; each epoch leaves out N (data.drop_last)", where N is the number of training images that an
/// epoch leaves out; empty if N is 0.
std::string left_out_text(const Task& task);

/// Returns the distinct sizes of the micro-batches of `count` rows: `batch`, and the size of a smaller last
/// one.
std::vector<int64_t> batch_sizes(int64_t count, int64_t batch);

}  // namespace hearth::tasks
