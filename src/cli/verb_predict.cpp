#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "data/captions/image_files.h"
#include "data/images/image.h"
#include "io/html.h"
#include "run/predict_session.h"

namespace hearth::cli {
namespace {

struct PredictArguments {
  std::string run, out;
  std::vector<std::string> rest;
  bool json = false, requests = false;
};

/// Returns the images among the arguments, and the images in those arguments that are folders.
std::vector<fs::path> images_of(const std::vector<std::string>& names) {
  std::vector<fs::path> images;
  for (const std::string& name : names) {
    if (!fs::is_directory(name)) {
      images.emplace_back(name);
      continue;
    }
    for (const auto& [stem, path] : data::image_files(name)) images.push_back(path);
  }
  if (images.empty())
    user_error("there are no images ({}) in {}; try a folder that contains images directly",
               data::kImageFormats, fmt::join(names, ", "));
  return images;
}

void check_names(const std::vector<fs::path>& images) {
  std::set<fs::path> seen;
  for (const fs::path& image : images) {
    if (seen.insert(image.stem()).second) continue;
    user_error("two images are named {}, but predictions are named after their images; rename one",
               image.stem().string());
  }
}

/// Predicts an image without writing files. "mask" is a PNG file of class numbers, in base64.
Json json_of(run::PredictSession& session, const fs::path& image) {
  const MappedFile file(image);
  const tasks::ImagePrediction found = session.analyze(file.bytes(), image.native());
  Json json = {{"image", image.string()}};
  const char* share = found.mask_png.empty() ? "probability" : "fraction";
  for (const auto& one : found.classes) json["classes"].push_back({{"name", one.name}, {share, one.share}});
  if (found.has_boxes) json["boxes"] = Json::array();
  for (const auto& one : found.boxes) {
    json["boxes"].push_back({{"name", one.name},
                             {"score", one.score},
                             {"x", one.x},
                             {"y", one.y},
                             {"width", one.width},
                             {"height", one.height}});
  }
  if (!found.mask_png.empty()) json["mask"] = io::base64(found.mask_png);
  return json;
}

void print_predictions(run::PredictSession& session, const std::vector<fs::path>& images) {
  Json predictions = Json::array();
  for (const fs::path& image : images) predictions.push_back(json_of(session, image));
  print_json({{"weights", session.weights().string()}, {"predictions", predictions}});
}

void run_predict(const PredictArguments& arguments) {
  std::vector<std::string> names, overrides;
  for (const std::string& text : arguments.rest)
    (text.find('=') != text.npos && !fs::exists(text) ? overrides : names).push_back(text);
  const recipe::Recipe recipe = open_run(arguments.run, overrides);
  if (arguments.requests) {
    if (!names.empty())
      user_error("--requests reads the names of images from standard input; remove {}", names[0]);
    run::PredictSession session(recipe, arguments.run, arguments.out);
    return answer_requests(
        [&](const Json& request) { return json_of(session, request.at("image").get<std::string>()); });
  }
  if (names.empty()) user_error("expected images after '{}'", arguments.run);
  const std::vector<fs::path> images = images_of(names);
  run::PredictSession session(recipe, arguments.run, arguments.out);
  if (arguments.json) return print_predictions(session, images);
  if (session.writes_files()) check_names(images);
  for (const fs::path& image : images) say("{}\n", session.predict(image));
  session.finish();
  say("weights: {}\n", session.weights().string());
}

}  // namespace

void add_predict(CLI::App& app) {
  const auto arguments = std::make_shared<PredictArguments>();
  CLI::App* verb = app.add_subcommand("predict",
                                      "Classify, segment or detect objects in images with the best weights "
                                      "of a run (its last ones if it has no best)");
  verb->add_option("run", arguments->run, "Run folder")->required();
  verb->add_option("images", arguments->rest, "Image files or folders of images; also recipe overrides");
  verb->add_option("--out", arguments->out,
                   "Output folder for images of predictions (default: RUN/predictions)");
  add_json(*verb, arguments->json);
  add_requests(*verb, arguments->requests, "\"image\", the name of a file,");
  set_example(*verb, "hearth predict runs/demo IMAGE.png");
  verb->callback([=] { run_predict(*arguments); });
}

}  // namespace hearth::cli
