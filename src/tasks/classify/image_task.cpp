#include "tasks/classify/image_task.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/images/augment.h"
#include "data/images/image.h"
#include "recipe/recipe.h"
#include "tasks/classify/classifier.h"
#include "tasks/classify/tensors_dataset.h"
#include "tasks/loader_stream.h"
#include "tasks/stratified_indices.h"
#include "tasks/vision_figures.h"
#include "tasks/worst_list.h"

namespace hearth::tasks {
namespace {

/// Min side of images in pixels.
constexpr int64_t kMinSide = 4;

void check_fits(const models::ModelOptions& model, const data::DatasetOptions& options,
                const data::Dataset& dataset) {
  const std::string& split = options.split;
  if (dataset.size() == 0)
    user_error("found no images of the {} split in {}; check data.path", split, options.path.string());
  const Extent size = dataset.image_size();
  if (size.shorter() < kMinSide) {
    user_error("expected images of at least {0}x{0} pixels, got {1}x{2} in the {3} split of {4}", kMinSide,
               size.width, size.height, split, options.path.string());
  }
  if (size != model.image_size || dataset.channels() != model.channels) {
    const std::string sides = size.width == size.height ? std::to_string(size.width)
                                                        : fmt::format("[{},{}]", size.width, size.height);
    user_error(
        "the recipe expects images of {}x{}x{}, got {}x{}x{} in the {} split of {}; try data.image_size={} "
        "data.channels={}",
        model.image_size.width, model.image_size.height, model.channels, size.width, size.height,
        dataset.channels(), split, options.path.string(), sides, dataset.channels());
  }
  if (std::ssize(dataset.class_names()) > model.num_classes) {
    user_error(
        "{} has {} classes, but model.num_classes is {}; remove model.num_classes to use the number in the "
        "data",
        recipe::data_kind(options.kind) == recipe::DataKind::shapes ? "data.kind=shapes"
                                                                    : options.path.string(),
        dataset.class_names().size(), model.num_classes);
  }
}

std::vector<int32_t> labels_of(const data::Dataset& dataset) {
  std::vector<int32_t> labels(static_cast<size_t>(dataset.size()));
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = dataset.label(static_cast<int64_t>(i));
  return labels;
}

/// Accumulates the metrics of evaluated batches, and the contents of the report if it shows samples.
class MetricSums {
 public:
  MetricSums(const data::Dataset& dataset, int64_t num_classes, int64_t num_shown)
      : dataset_(dataset),
        num_classes_(num_classes),
        num_names_(std::ssize(dataset.class_names())),
        has_report_(num_shown > 0),
        shown_(stratified_indices(dataset.holds_floats() ? 0 : num_shown, dataset.size())),
        scores_(has_report_ ? dataset.size() : 0, num_names_),
        mistakes_(has_report_ && !dataset.holds_floats() ? kMaxWorst : 0) {
    result_.confusion.assign(static_cast<size_t>(num_names_ * num_names_), 0);
  }

  void add(engine::Engine& engine, const data::Batch& batch) {
    result_.loss += engine.evaluate(engine::MicroBatch(batch));
    result_.score += engine.output(kCorrect)[0];
    for (int64_t i = 0; i < batch.count; ++i) {
      const auto row = engine.output(kProbabilities)
                           .subspan(static_cast<size_t>(i * num_classes_), static_cast<size_t>(num_classes_));
      add_image(row, data::ImageRows::labels(batch)[i], batch.indices[i]);
    }
  }

  Evaluation take() {
    result_.loss /= static_cast<double>(dataset_.size());
    result_.score /= static_cast<double>(dataset_.size());
    result_.metrics = {{"accuracy", result_.score}};
    if (has_report_) add_figures();
    return std::move(result_);
  }

 private:
  void add_image(std::span<const float> probabilities, int64_t truth, int64_t index) {
    const int64_t predicted = std::ranges::max_element(probabilities) - probabilities.begin();
    if (predicted >= num_names_ || truth >= num_names_) return;
    ++result_.confusion[static_cast<size_t>(truth * num_names_ + predicted)];
    if (!has_report_) return;
    const auto confidence = static_cast<double>(probabilities[static_cast<size_t>(predicted)]);
    scores_.add(probabilities, truth);
    calibration_.add(confidence, predicted == truth);
    const double loss = -std::log(static_cast<double>(probabilities[static_cast<size_t>(truth)]));
    if (predicted != truth && mistakes_.accepts(loss))
      mistakes_.add(loss, index, {.truth = truth, .predicted = predicted, .confidence = confidence});
    if (std::ranges::binary_search(shown_, index))
      result_.samples.push_back(
          sample(index, {.truth = truth, .predicted = predicted, .confidence = confidence}));
  }

  struct Prediction {
    int64_t truth = 0, predicted = 0;
    double confidence = 0;
  };
  io::SamplePrediction sample(int64_t index, const Prediction& one) const {
    const std::vector<std::string>& names = dataset_.class_names();
    return {.png = data::encode_png(data::read_image(dataset_, index)),
            .truth = names[static_cast<size_t>(one.truth)],
            .predicted = names[static_cast<size_t>(one.predicted)],
            .probability = one.confidence};
  }

  void add_figures() {
    const std::vector<std::string>& names = dataset_.class_names();
    const std::vector<ScoreCurve> curves = scores_.trace();
    result_.sections = {
        precision_section(curves, names,
                          scores_.is_exact() ? "Each class against the rest."
                                             : "Each class against the rest, with scores counted in bins."),
        calibration_section(calibration_)};
    result_.tables = {class_table(names, curves), frequent_confusions(result_.confusion, names)};
    for (const auto& entry : mistakes_.entries())
      result_.mistakes.push_back(sample(entry.index, entry.details));
  }

  io::ReportTable class_table(const std::vector<std::string>& names,
                              const std::vector<ScoreCurve>& curves) const {
    io::ReportTable table{.title = "Classes",
                          .header = {"class", "images", "precision", "recall", "F1", "AP"},
                          .rows = {},
                          .is_sortable = true};
    for (size_t i = 0; i < names.size(); ++i) {
      const ClassCounts counts = counts_of_class(result_.confusion, names.size(), i);
      table.rows.push_back({names[i], std::to_string(counts.num_true), percent_text(counts.precision()),
                            percent_text(counts.recall()), percent_text(counts.f1()),
                            percent_text(curves[i].average_precision)});
    }
    return table;
  }

  const data::Dataset& dataset_;
  int64_t num_classes_;
  int64_t num_names_;
  bool has_report_;
  std::vector<int64_t> shown_;
  ClassScores scores_;
  Calibration calibration_;
  WorstList<Prediction> mistakes_;
  Evaluation result_;
};

}  // namespace

ImageTask::ImageTask(const ImageTaskOptions& options)
    : model_(options.model),
      loader_(options.loader),
      pixels_(options.pixels),
      train_(open_any_dataset(options.train, options.model.num_classes)),
      test_(open_any_dataset(options.held_out, options.model.num_classes)),
      rows_(*train_, options.pixels) {
  check_fits(options.model, options.train, *train_);
  check_fits(options.model, options.held_out, *test_);
  if (options.balance) balance_.emplace(labels_of(*train_));
}

std::unique_ptr<BatchStream> ImageTask::open(const data::LoaderPosition& from,
                                             const data::LoaderShare& share) const {
  data::LoaderOptions options = with_balance(loader_, balance_);
  options.share = share;
  return std::make_unique<LoaderStream>(rows_, options, from);
}

std::unique_ptr<BatchStream> ImageTask::open_held_out() const {
  data::PixelOptions pixels = pixels_;
  pixels.augment = {};
  return std::make_unique<HeldOutStream<data::ImageRows>>(data::ImageRows(*test_, pixels), loader_);
}

Evaluation ImageTask::evaluate(engine::Engine& engine, int64_t num_shown) const {
  const data::LoaderOptions options = data::in_order(loader_);
  data::PixelOptions pixels = pixels_;
  pixels.augment = {};
  const data::ImageRows rows(*test_, pixels);
  data::Loader loader(rows, options);
  MetricSums tally(*test_, model_.num_classes, num_shown);
  for (int64_t done = 0; done < test_->size();) {
    const data::Batch& batch = loader.next();
    tally.add(engine, batch);
    done += batch.count;
  }
  return tally.take();
}

std::string ImageTask::describe() const {
  return fmt::format("{} training{} and {} validation images{}", train_->size(), balance_ ? kBalanced : "",
                     test_->size(), left_out_text(*this));
}

std::string ImageTask::warning() const {
  std::vector<std::string> notes = train_->notes();
  for (const std::string& note : test_->notes())
    if (std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
  return notes.empty() ? "" : fmt::format("note: {}", fmt::join(notes, "\nnote: "));
}

std::string ImageTask::score_text(double score) const { return fmt::format("accuracy {:.2f}%", 100 * score); }

void ImageTask::report(const Evaluation& last, const fs::path& log, io::ReportData& data) const {
  data.summary.emplace_back("training images", std::to_string(train_->size()));
  data.summary.emplace_back("validation images", std::to_string(test_->size()));
  data.score = {"Validation accuracy, %", "accuracy", io::read_curve(log, "eval_accuracy")};
  for (io::CurvePoint& point : data.score.points) point.value *= 100;
  data.class_names = test_->class_names();
  data.confusion = last.confusion;
  data.samples = last.samples;
  data.mistakes = last.mistakes;
  data.sections = last.sections;
  data.sections.push_back(label_section(last));
  data.tables = last.tables;
}

void ImageTask::show_samples(const data::LoaderPosition& from, int64_t count, io::ReportData& page) const {
  if (train_->holds_floats())
    user_error("data.kind=tensors contains floats, which cannot be shown as images; remove --preview");
  page.strips_title = "Training images and their classes";
  for_rows_from(
      rows_, with_balance(loader_, balance_), from, count, [&](const data::Batch& batch, int64_t row) {
        const int64_t floats_per_image = model_.image_size.num_pixels() * model_.channels;
        const data::Image image =
            data::image_of_normalized(pixels_, model_.image_size, model_.channels,
                                      data::ImageRows::images(batch) + row * floats_per_image);
        page.strips.push_back(
            {.images = {data::encode_png(image)},
             .caption = train_->class_names()[static_cast<size_t>(data::ImageRows::labels(batch)[row])]});
      });
}

io::ReportSection ImageTask::label_section(const Evaluation& last) const {
  const std::vector<std::string>& names = train_->class_names();
  std::vector<int64_t> train(names.size()), held_out;
  for (const int32_t label : labels_of(*train_)) ++train.at(static_cast<size_t>(label));
  const size_t num_held_out = test_->class_names().size();
  for (size_t i = 0; i < num_held_out && !last.confusion.empty(); ++i)
    held_out.push_back(counts_of_class(last.confusion, num_held_out, i).num_true);
  return {.title = "Labels",
          .note = "",
          .charts = {class_count_chart("Training images by class", names, train),
                     class_count_chart("Validation images by class", test_->class_names(), held_out)}};
}

int64_t ImageTask::staging_bytes() const {
  return 8 * loader_.batch * model_.image_size.num_pixels() * model_.channels;
}

}  // namespace hearth::tasks
