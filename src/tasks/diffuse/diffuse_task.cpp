#include "tasks/diffuse/diffuse_task.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>

#include "base/error.h"
#include "base/run_files.h"
#include "data/images/image.h"
#include "tasks/diffuse/agreement_classifier.h"
#include "tasks/loader_stream.h"
#include "tasks/stratified_indices.h"

namespace hearth::tasks {
namespace {

/// Noise levels at which the evaluation loss is measured.
constexpr double kLevels[] = {0.1, 0.3, 0.5, 0.7, 0.9};
/// Max number of default prompts of an evaluation, and number of images generated per class.
constexpr int64_t kMaxPrompts = 16;
constexpr int64_t kImagesPerClass = 4;
/// Number of the first noise (draw_noise) of the images for class agreement. Those for the samples folder
/// start at 0, so the two sets do not share noise.
constexpr uint64_t kFirstAgreementNoise = 1 << 20;
constexpr const char* kAgreement = "class_agreement";
constexpr int64_t kMaxInStrip = 8;

void check_fits(const models::DenoiserConfig& model, int64_t channels, Extent size) {
  if (channels != model.channels)
    user_error("the model expects images of {} channels, but the data has {}; set data.channels={}",
               model.channels, channels, model.channels);
  if (size.height % model.patch != 0 || size.width % model.patch != 0)
    user_error(
        "image sides must be multiples of {}, the model's patch size, got {}x{}; try data.image_size={}",
        model.patch, size.width, size.height,
        std::max(model.patch, size.shorter() / model.patch * model.patch));
}

DiffuseTaskOptions checked(DiffuseTaskOptions options) {
  if (options.images->train().size() == 0 || options.images->held_out().size() == 0)
    user_error("found no images to train on or to validate with; check data.path and data.val_share");
  const int64_t size = options.images->train().size();
  if (options.diffuse.judged > 0 && options.format.has_labels() && size < AgreementClassifier::kMinImages)
    user_error("diffuse.judged needs at least {} training images, got {}; try diffuse.judged=0",
               AgreementClassifier::kMinImages, size);
  return options;
}

std::vector<int64_t> lengths_of(const data::LatentSource& source) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < source.size(); ++i) lengths.push_back(length_of(source.extent(i)));
  return lengths;
}

/// Returns the distinct row lengths of held-out and training images, longest first.
std::vector<int64_t> joined_lengths(const data::LatentSource& held_out, const data::BucketOrder& train) {
  std::vector<int64_t> lengths = lengths_of(held_out);
  lengths.insert(lengths.end(), train.lengths().begin(), train.lengths().end());
  std::ranges::sort(lengths, std::ranges::greater());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

/// Returns at most kMaxPrompts of the prompts, evenly spread over the list.
std::vector<std::string> choose_prompts(const std::vector<std::string>& prompts) {
  std::vector<std::string> some;
  for (const int64_t i : stratified_indices(kMaxPrompts, std::ssize(prompts)))
    some.push_back(prompts[static_cast<size_t>(i)]);
  return some;
}

Extent most_frequent(const data::LatentSource& source) {
  std::map<int64_t, int64_t> counts;
  for (const int64_t length : lengths_of(source)) ++counts[length];
  return extent_of(
      std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; })->first);
}

/// Returns the step in the file name of a sample, 250 for "step-000250-3.png".
int64_t step_of(const fs::path& file) {
  const std::string digits = file.stem().string().substr(std::string_view("step-").size());
  return std::strtoll(digits.c_str(), nullptr, 10);
}

/// Returns the title of a generated image in the report. `name`: index of its prompt; other names are class
/// grids, whose title lists the classes of the columns.
std::string sample_title(const std::string& name, const std::vector<std::string>& prompts) {
  const char* end = name.data() + name.size();
  size_t index = 0;
  if (std::from_chars(name.data(), end, index).ptr != end)
    return fmt::format("columns: {}", fmt::join(prompts, ", "));
  return index < prompts.size() ? fmt::format("\"{}\"", prompts[index]) : name;
}

}  // namespace

SamplerOptions sampler_for(const Noising& noising, const models::DenoiserConfig& model, int64_t steps,
                           Extent latents) {
  if (!noising.is_flow()) return {.solver = Solver::ddim, .steps = steps};
  const int64_t num_tokens = latents.num_pixels() / (model.patch * model.patch);
  double shift = 1;
  const recipe::Diffuse& training = noising.options();
  if (training.sampling == recipe::NoiseSampling::shift) shift = training.shift;
  if (training.sampling == recipe::NoiseSampling::flux_shift) {
    shift = model.family == models::DenoiserConfig::Family::flux2 ? flux2_shift(num_tokens, steps)
                                                                  : flux_shift(num_tokens);
  }
  return {.solver = Solver::euler, .steps = steps, .shift = shift};
}

DiffuseTask::DiffuseTask(DiffuseTaskOptions options)
    : options_(checked(std::move(options))),
      noising_(options_.objective, options_.diffuse),
      rows_(options_.images->train(), options_.format, noising_, options_.diffuse.dropout),
      eval_rows_(options_.images->held_out(), options_.format, noising_,
                 {std::begin(kLevels), std::end(kLevels)},
                 std::min(options_.diffuse.val_images, options_.images->held_out().size())),
      order_(lengths_of(options_.images->train()), options_.loader.batch),
      lengths_(joined_lengths(options_.images->held_out(), order_)),
      latents_(most_frequent(options_.images->train())) {
  const data::LatentSource& train = options_.images->train();
  for (const int64_t length : lengths_)
    check_fits(options_.format.model, train.channels(), extent_of(length));
}

std::unique_ptr<BatchStream> DiffuseTask::open(const data::LoaderPosition& from,
                                               const data::LoaderShare& share) const {
  data::LoaderOptions options = options_.loader;
  options.share = share;
  options.buckets = &order_;
  return std::make_unique<LoaderStream>(rows_, options, from);
}

int64_t DiffuseTask::eval_batch() const {
  return lengths_.size() > 1 ? 1 : std::min(options_.loader.batch, eval_rows_.num_rows());
}

std::vector<int64_t> DiffuseTask::eval_sizes(int64_t) const {
  return batch_sizes(eval_rows_.num_rows(), eval_batch());
}

std::vector<std::string> DiffuseTask::evaluation_prompts() const {
  const std::vector<std::string>& configured = options_.diffuse.prompts;
  return configured.empty() ? choose_prompts(options_.images->prompts()) : configured;
}

double DiffuseTask::loss_at_fixed_levels(engine::Engine& engine) const {
  data::LoaderOptions options = data::in_order(options_.loader);
  options.batch = eval_batch();
  const data::LatentSource& held_out = options_.images->held_out();
  LoaderStream stream(eval_rows_, options);
  double sum = 0;
  for (int64_t done = 0; done < eval_rows_.num_rows();) {
    engine::MicroBatch batch = stream.next();
    batch.row_length = length_of(held_out.extent(done / std::ssize(kLevels)));
    sum += engine.evaluate(batch);
    done += batch.num_rows;
  }
  return sum / static_cast<double>(eval_rows_.num_rows());
}

LatentGenerator DiffuseTask::generator(engine::Engine& engine) const {
  LatentGeneratorOptions made{
      .format = options_.format,
      .latents = latents_,
      .sampler = sampler_for(noising_, options_.format.model, options_.diffuse.steps, latents_),
      .guidance = options_.diffuse.guidance,
      .batch = eval_batch(),
      .row_length = length_of(latents_)};
  const distributed::EncodingPhase work(engine.heartbeat());
  if (made.compares()) made.unconditional = options_.images->codec()->no_condition();
  return {engine, noising_, std::move(made)};
}

std::vector<data::Image> DiffuseTask::images_of(engine::Engine& engine, LatentGenerator& generator,
                                                std::span<const Condition> requested, uint64_t first) const {
  const std::vector<std::vector<float>> all = generator.make(requested, options_.loader.seed, first);
  const distributed::EncodingPhase work(engine.heartbeat());
  std::vector<data::Image> images;
  for (const std::vector<float>& latents : all)
    images.push_back(options_.images->codec()->image(latents, latents_));
  return images;
}

std::optional<double> DiffuseTask::measure_agreement(engine::Engine& engine,
                                                     LatentGenerator& generator) const {
  if (options_.diffuse.judged == 0 || !options_.format.has_labels()) return std::nullopt;
  const std::vector<std::string> classes = options_.images->prompts();
  const std::vector<Condition> known = options_.images->codec()->conditions(classes);
  std::vector<Condition> requested;
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < options_.diffuse.judged; ++i) {
    requested.push_back(known[static_cast<size_t>(i) % known.size()]);
    labels.push_back(requested.back().label);
  }
  const std::vector<data::Image> made = images_of(engine, generator, requested, kFirstAgreementNoise);
  const distributed::EncodingPhase work(engine.heartbeat());
  return options_.images->agreement(made, labels);
}

void DiffuseTask::generate_images(engine::Engine& engine, LatentGenerator& generator,
                                  Evaluation& made) const {
  const DiffusionCodec& codec = *options_.images->codec();
  const std::vector<std::string> prompts = evaluation_prompts();
  const bool has_classes = options_.format.has_labels();
  std::vector<Condition> requested;
  {
    const distributed::EncodingPhase work(engine.heartbeat());
    const std::vector<Condition> conditions = codec.conditions(prompts);
    for (int64_t i = 0; i < (has_classes ? kImagesPerClass : 1); ++i)
      requested.insert(requested.end(), conditions.begin(), conditions.end());
  }
  std::vector<data::Image> images = images_of(engine, generator, requested, 0);
  const distributed::EncodingPhase work(engine.heartbeat());
  if (has_classes) {
    made.images.push_back({.name = "classes", .image = image_grid(images, std::ssize(prompts))});
    return;
  }
  for (size_t i = 0; i < images.size(); ++i)
    made.images.push_back({.name = std::to_string(i), .image = std::move(images[i])});
}

Evaluation DiffuseTask::evaluate(engine::Engine& engine, int64_t num_shown) const {
  Evaluation made;
  made.loss = loss_at_fixed_levels(engine);
  made.score = -made.loss;
  if (options_.images->codec() == nullptr) return made;
  LatentGenerator generator = this->generator(engine);
  generate_images(engine, generator, made);
  if (const std::optional<double> agreement =
          num_shown > 0 ? measure_agreement(engine, generator) : std::nullopt)
    made.metrics.emplace_back(kAgreement, *agreement);
  return made;
}

std::string DiffuseTask::score_text(double score) const {
  return fmt::format("loss at fixed noise {:.4f}", -score);
}

std::string DiffuseTask::evaluation_text(const Evaluation& found) const {
  for (const auto& [name, value] : found.metrics)
    if (std::string_view(name) == kAgreement) return fmt::format("class agreement: {:.3f}", value);
  return fmt::format("{} images in samples/", found.images.size());
}

std::string DiffuseTask::last_line(const fs::path& log) const {
  const std::vector<io::CurvePoint> points = io::read_curve(log, fmt::format("eval_{}", kAgreement));
  return points.empty() ? "" : fmt::format("class agreement: {:.3f}", points.back().value);
}

void DiffuseTask::report(const Evaluation& last, const fs::path& log, io::ReportData& data) const {
  data.summary.emplace_back("training images", std::to_string(rows_.num_rows()));
  for (const auto& [name, value] : last.metrics)
    if (std::string_view(name) == kAgreement)
      data.summary.emplace_back("class agreement", fmt::format("{:.3f}", value));
  data.strips_title = "Generated images, from the first evaluation to the last";
  const std::vector<std::string> prompts = evaluation_prompts();
  std::map<std::string, std::vector<fs::path>> by_name;
  const fs::path folder = log.parent_path() / io::kSamplesFolder;
  if (!path_exists(folder)) return;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string stem = entry.path().stem().string();
    by_name[stem.substr(stem.rfind('-') + 1)].push_back(entry.path());
  }
  for (auto& [name, files] : by_name) {
    std::ranges::sort(files);
    io::ImageStrip strip;
    std::vector<int64_t> steps;
    for (const int64_t i : stratified_indices(kMaxInStrip, std::ssize(files))) {
      const fs::path& file = files[static_cast<size_t>(i)];
      strip.images.push_back(read_file(file));
      steps.push_back(step_of(file));
    }
    strip.caption = fmt::format("{}; seed {}; steps {}", sample_title(name, prompts), options_.loader.seed,
                                fmt::join(steps, ", "));
    data.strips.push_back(std::move(strip));
  }
}

void DiffuseTask::save_companions(const fs::path& folder, DType) const {
  write_file_atomically(folder / kModelConfig, options_.config);
  if (!options_.format.has_labels()) return;
  std::string names;
  for (const std::string& name : options_.images->prompts()) names += name + "\n";
  write_file_atomically(folder / kClassNames, names);
}

int64_t DiffuseTask::staging_bytes() const {
  return 2 * options_.loader.batch * data::row_bytes(rows_.formats(0));
}

}  // namespace hearth::tasks
