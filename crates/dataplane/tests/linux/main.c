/* Reads what comes and goes, and says which packet leaves, whether it is marked, and
 * which were dropped before. */

int main(void)
{
	static struct fq_codel_sched_data q;
	static struct Qdisc sch = { .handle = 0x10000, .priv = &q };
	unsigned long long target, interval, ce_threshold, time, id;
	unsigned ecn, i, hash, len, truesize, mark;
	char what;

	if (scanf("%llu %llu %llu %u %u %u %u %u %u", &target, &interval, &ce_threshold,
		  &ecn, &q.cparams.mtu, &q.quantum, &sch.limit, &q.memory_limit,
		  &q.flows_cnt) != 9)
		return 1;
	q.drop_batch_size = 64;
	INIT_LIST_HEAD(&q.new_flows);
	INIT_LIST_HEAD(&q.old_flows);
	codel_stats_init(&q.cstats);
	q.cparams.target = target >> CODEL_SHIFT;
	q.cparams.interval = interval >> CODEL_SHIFT;
	q.cparams.ce_threshold = CODEL_DISABLED_THRESHOLD;
	if (ce_threshold) {
		q.cparams.ce_threshold = ce_threshold >> CODEL_SHIFT;
		q.cparams.ce_threshold_mask = 3;
		q.cparams.ce_threshold_selector = 1;
	}
	q.cparams.ecn = ecn;
	q.flows = calloc(q.flows_cnt, sizeof(*q.flows));
	q.backlogs = calloc(q.flows_cnt, sizeof(*q.backlogs));
	for (i = 0; i < q.flows_cnt; i++) {
		INIT_LIST_HEAD(&q.flows[i].flowchain);
		codel_vars_init(&q.flows[i].cvars);
	}
	while (scanf(" %c %llu", &what, &time) == 2) {
		struct sk_buff *skb, *to_free = NULL;

		shim_now = time;
		if (what == '+') {
			if (scanf("%llu %u %u %u %u", &id, &hash, &len, &truesize, &mark) != 5)
				return 1;
			skb = calloc(1, sizeof(*skb));
			skb->id = id;
			skb->hash = hash;
			skb->len = len;
			skb->truesize = truesize;
			skb->ecn = mark;
			fq_codel_enqueue(skb, &sch, &to_free);
		} else {
			skb = fq_codel_dequeue(&sch);
			if (skb) {
				printf(" -> %llu ecn %u", (unsigned long long)skb->id, skb->ecn);
				free(skb);
			}
		}
		putchar('\n');
	}
	return 0;
}
