// Bounds by the Disco Deterministic Network Calculator (DiscoDNC), for comparison.
//
// Reads networks as lines of numbers: "network PORTS FLOWS", then "RATE LATENCY" for each port and
// "RATE BURST PORT PORT ..." for each flow, in bits, bits a microsecond and microseconds. Writes a
// line for each network: for each flow its delays in nanoseconds by TFA and SFA for FIFO servers,
// and by TFA, SFA and PMOO for servers of any order.

import de.uni_kl.cs.discodnc.curves.CurvePwAffine;
import de.uni_kl.cs.discodnc.nc.AnalysisConfig;
import de.uni_kl.cs.discodnc.nc.AnalysisConfig.ArrivalBoundMethod;
import de.uni_kl.cs.discodnc.nc.AnalysisConfig.MuxDiscipline;
import de.uni_kl.cs.discodnc.nc.analyses.PmooAnalysis;
import de.uni_kl.cs.discodnc.nc.analyses.SeparateFlowAnalysis;
import de.uni_kl.cs.discodnc.nc.analyses.TotalFlowAnalysis;
import de.uni_kl.cs.discodnc.network.Flow;
import de.uni_kl.cs.discodnc.network.Network;
import de.uni_kl.cs.discodnc.network.Server;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

public class Disco {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] head = line.split(" ");
            System.out.println(bounds(in, Integer.parseInt(head[1]), Integer.parseInt(head[2])));
        }
    }

    static String bounds(BufferedReader in, int ports, int flows) throws Exception {
        CurvePwAffine factory = CurvePwAffine.getFactory();
        Network network = new Network();
        List<Server> servers = new ArrayList<>();
        for (int i = 0; i < ports; i++) {
            String[] port = in.readLine().split(" ");
            double rate = Double.parseDouble(port[0]);
            double latency = Double.parseDouble(port[1]);
            servers.add(network.addServer(factory.createRateLatency(rate, latency)));
        }
        Set<Long> linked = new HashSet<>();
        List<Flow> all = new ArrayList<>();
        for (int i = 0; i < flows; i++) {
            String[] flow = in.readLine().split(" ");
            List<Server> path = new ArrayList<>();
            for (int hop = 2; hop < flow.length; hop++) {
                path.add(servers.get(Integer.parseInt(flow[hop])));
                if (hop > 2) {
                    long from = Long.parseLong(flow[hop - 1]);
                    if (linked.add(from * ports + Long.parseLong(flow[hop]))) {
                        network.addLink(path.get(hop - 3), path.get(hop - 2));
                    }
                }
            }
            double rate = Double.parseDouble(flow[0]);
            double burst = Double.parseDouble(flow[1]);
            all.add(network.addFlow(factory.createTokenBucket(rate, burst), path));
        }
        StringBuilder text = new StringBuilder();
        for (Flow flow : all) {
            if (text.length() > 0) {
                text.append(' ');
            }
            text.append(String.join(",", delays(network, flow)));
        }
        return text.toString();
    }

    static List<String> delays(Network network, Flow flow) throws Exception {
        List<String> delays = new ArrayList<>();
        for (MuxDiscipline order : new MuxDiscipline[] {
            MuxDiscipline.GLOBAL_FIFO, MuxDiscipline.GLOBAL_ARBITRARY
        }) {
            AnalysisConfig config = new AnalysisConfig();
            config.setMultiplexingDiscipline(order);
            boolean fifo = order == MuxDiscipline.GLOBAL_FIFO;
            config.setArrivalBoundMethods(fifo
                ? EnumSet.of(ArrivalBoundMethod.PBOO_CONCATENATION)
                : EnumSet.of(ArrivalBoundMethod.PBOO_CONCATENATION, ArrivalBoundMethod.PMOO));
            TotalFlowAnalysis total = new TotalFlowAnalysis(network, config);
            total.performAnalysis(flow);
            delays.add(nanos(total.getDelayBound().doubleValue()));
            SeparateFlowAnalysis separate = new SeparateFlowAnalysis(network, config);
            separate.performAnalysis(flow);
            delays.add(nanos(separate.getDelayBound().doubleValue()));
            if (!fifo) {
                PmooAnalysis once = new PmooAnalysis(network, config);
                once.performAnalysis(flow);
                delays.add(nanos(once.getDelayBound().doubleValue()));
            }
        }
        return delays;
    }

    static String nanos(double micros) {
        return String.valueOf(Math.round(micros * 1000));
    }
}
